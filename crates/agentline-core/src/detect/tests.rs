//! Tests of detection on simulated machines.

use super::{Candidate, DetectResult, Os, Search, find, find_cli, find_tool};
use crate::{AgentDescription as _, AgentInfo, Version, agents::gemini::Gemini, memory_fs::MemoryFs};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::LazyLock,
};

static GEMINI: LazyLock<AgentInfo<'static>> = LazyLock::new(|| Gemini.info());

fn info() -> &'static AgentInfo<'static> {
    &GEMINI
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn search(env: &BTreeMap<String, String>) -> Search<'_> {
    let mut search = Search::new(env, Path::new("/home/u"), Path::new("/w/p"));
    search.os = Os::Linux;
    search.cache = Some(Path::new("/cache"));
    search
}

/// Returns the selected place, with the path to start and its version.
fn won(found: &DetectResult) -> Option<(Candidate, PathBuf, Option<Version>)> {
    let program = found.program.clone()?;
    let candidate = found.looked.iter().find(|l| l.found)?.place;
    Some((candidate, program.path, program.version))
}

/// Each row is found on its own; of two rows, the upper one wins.
#[test]
fn locations_are_tried_in_order() {
    let rows: &[(Candidate, &str, &str)] = &[
        (Candidate::Path, "/p1/lib/node_modules", "/p1/gemini"),
        (Candidate::Path, "/p2/lib/node_modules", "/p2/gemini"),
        (Candidate::Npm, "/home/u/.npm-global/lib/node_modules", "/home/u/.npm-global/bin/gemini"),
        (Candidate::Npm, "/usr/local/lib/node_modules", "/usr/local/bin/gemini"),
        (Candidate::Npm, "/home/u/.local/lib/node_modules", "/home/u/.local/bin/gemini"),
        (
            Candidate::Nvm,
            "/nvm/versions/node/v22.1.0/lib/node_modules",
            "/nvm/versions/node/v22.1.0/bin/gemini",
        ),
        (Candidate::Fnm, "/f/a", "/home/u/.local/share/fnm/node-versions/v20.0.0/installation/bin/gemini"),
        (Candidate::Volta, "/v/a", "/home/u/.volta/bin/gemini"),
        (Candidate::Asdf, "/as/a", "/home/u/.asdf/installs/nodejs/20.1.0/bin/gemini"),
        (Candidate::Asdf, "/as/b", "/home/u/.asdf/shims/gemini"),
        (Candidate::Mise, "/m/a", "/home/u/.local/share/mise/installs/node/20.1.0/bin/gemini"),
        (Candidate::Pnpm, "/pn/a", "/pnpm-home/gemini"),
        (Candidate::Pnpm, "/pn/b", "/home/u/.local/share/pnpm/gemini"),
        (Candidate::Bun, "/b/a", "/home/u/.bun/bin/gemini"),
        (Candidate::Homebrew, "/h/a", "/home/linuxbrew/.linuxbrew/bin/gemini"),
        (Candidate::NodeModules, "/w/p/node_modules", "/w/p/node_modules/.bin/gemini"),
        (Candidate::NodeModules, "/w/node_modules", "/w/node_modules/.bin/gemini"),
        (Candidate::Cache, "/c/a", "/cache/agents/gemini-0.61.0/node_modules/.bin/gemini"),
        (Candidate::Cache, "/c/b", "/cache/agents/gemini-0.60.1/node_modules/.bin/gemini"),
    ];
    let env = env(&[("PATH", "/p1:/p2::/node"), ("NVM_DIR", "/nvm"), ("PNPM_HOME", "/pnpm-home")]);
    let search = search(&env);
    let add = |fs: MemoryFs, (i, (_, modules, bin)): (usize, &(Candidate, &str, &str))| {
        fs.package(modules, bin, &format!("0.1.{i}"))
    };
    for first in 0..rows.len() {
        let base = || MemoryFs::default().file("/node/node", "");
        let alone = add(base(), (first, &rows[first]));
        let rest = rows.iter().enumerate().skip(first).fold(base(), add);
        for fs in [alone, rest] {
            let (candidate, path, version) = won(&find(info(), &search, &fs)).unwrap();
            assert_eq!((candidate, path.to_str().unwrap()), (rows[first].0, rows[first].2));
            assert_eq!(version, Some(Version(0, 1, u32::try_from(first).unwrap())), "{path:?}");
        }
    }
}

#[test]
fn missing_locations_are_listed_with_their_patterns() {
    let env = env(&[("PATH", "/bin")]);
    let found = find(info(), &search(&env), &MemoryFs::default());
    assert_eq!((found.program, found.problem), (None, None));
    let has = |p: &str| found.looked.iter().any(|l| l.path == Path::new(p) && !l.found);
    assert!(has("/bin/gemini") && has("/home/u/.nvm/versions/node/*/bin/gemini"), "{:?}", found.looked);
    assert!(has("/cache/agents/gemini-0.61.0/node_modules/.bin/gemini"));
}

#[test]
fn newest_node_version_is_preferred() {
    let env = env(&[("PATH", "/bin")]);
    let bin = |v: &str| format!("/home/u/.nvm/versions/node/{v}/bin/gemini");
    let fs = ["v9.9.9", "v20.10.0", "v20.9.1", "latest"]
        .iter()
        .fold(MemoryFs::default().file("/bin/node", ""), |fs, v| {
            fs.package(&format!("/m/{v}"), &bin(v), "1.0.0")
        });
    let found = find(info(), &search(&env), &fs);
    let order: Vec<PathBuf> = found.looked.iter().filter(|l| l.found).map(|l| l.path.clone()).collect();
    assert_eq!(order, ["v20.10.0", "v20.9.1", "v9.9.9", "latest"].map(|v| PathBuf::from(bin(v))));
}

#[test]
fn path_variable_selects_the_program_or_fails() {
    let fs = MemoryFs::default().package("/m", "/bin/gemini", "0.61.0").package("/n", "/opt/g", "0.50.0");
    let fs = fs.file("/bin/node", "").plain("/opt/notes.txt", "hello");
    let set = |value| env(&[("PATH", "/bin"), ("GEMINI_CLI_PATH", value)]);

    let good = set("/opt/g");
    let found = find(info(), &search(&good), &fs);
    assert_eq!(won(&found), Some((Candidate::PathVariable, "/opt/g".into(), Some(Version(0, 50, 0)))));
    assert_eq!(found.looked.len(), 1);

    for (value, expected) in
        [("/opt/none", "`/opt/none` does not exist"), ("/opt/notes.txt", "not an executable file")]
    {
        let bad = set(value);
        let found = find(info(), &search(&bad), &fs);
        assert_eq!(found.program, None);
        let problem = found.problem.unwrap();
        assert_eq!(problem.key, "GEMINI_CLI_PATH");
        assert!(problem.message.contains(expected), "{problem}");
        assert!(problem.hint.unwrap().contains("unset `GEMINI_CLI_PATH`"));
    }

    let empty = set("");
    assert_eq!(won(&find(info(), &search(&empty), &fs)).unwrap().0, Candidate::Path);
    let home = set("~/g");
    let fs = fs.file("/home/u/g", "\u{7f}ELF");
    assert_eq!(won(&find(info(), &search(&home), &fs)).unwrap().1, Path::new("/home/u/g"));
}

#[test]
fn a_configured_program_is_a_path_or_a_name() {
    let env = env(&[("PATH", "/bin:/opt")]);
    let fs =
        MemoryFs::default().file("/opt/gemini-next", "x").file("/bin/gemini", "x").file("/w/p/tools/g", "x");
    let fs = fs.file("/w/p/gemini-next", "planted").file("/w/p/gemini-none", "planted");
    let with = |configured| {
        let search = Search { configured: Some(Path::new(configured)), ..search(&env) };
        find(info(), &search, &fs)
    };
    assert_eq!(won(&with("gemini-next")).unwrap().1, Path::new("/opt/gemini-next"));
    assert_eq!(won(&with("tools/g")).unwrap().1, Path::new("/w/p/tools/g"));
    // The configured program takes precedence over the agent's variable, and is used or causes an error.
    let variable = self::env(&[("PATH", "/bin:/opt"), ("GEMINI_CLI_PATH", "/bin/gemini")]);
    let missing = Search { configured: Some(Path::new("/opt/none")), ..search(&variable) };
    let found = find(info(), &missing, &fs);
    assert_eq!(found.program, None);
    assert!(found.problem.unwrap().hint.unwrap().contains("`agent_bin`"));
    assert_eq!(with("gemini-none").problem.unwrap().message, "`gemini-none` was not found on PATH");
}

#[test]
fn script_outside_path_uses_its_own_node() {
    let env = env(&[("PATH", "/bin")]);
    let bin = "/home/u/.nvm/versions/node/v20.1.0/bin";
    let fs = MemoryFs::default()
        .package("/m", &format!("{bin}/gemini"), "0.61.0")
        .file(&format!("{bin}/node"), "");
    let program = find(info(), &search(&env), &fs).program.unwrap();
    assert_eq!(program.path, Path::new(bin).join("node"));
    assert_eq!(program.args, ["/m/@google/gemini-cli/bundle/gemini.js"]);
    assert_eq!(program.version, Some(Version(0, 61, 0)));

    // The same `node` runs a program on PATH if PATH has none.
    let fs = fs.package("/q", "/bin/gemini", "0.61.0");
    let program = find(info(), &search(&env), &fs).program.unwrap();
    assert_eq!((program.path, program.args.len()), (Path::new(bin).join("node"), 1));
    assert_eq!(find_tool("node", &search(&env), &fs), Some(Path::new(bin).join("node")));
}

#[test]
fn non_executable_file_is_skipped() {
    let env = env(&[("PATH", "/a:/b")]);
    let fs = MemoryFs::default().plain("/a/gemini", "text").file("/b/gemini", "x");
    let found = find(info(), &search(&env), &fs);
    assert_eq!(found.program.unwrap().path, Path::new("/b/gemini"));
    assert_eq!(found.looked[0].note.as_deref(), Some("is not an executable file"));
}

#[test]
fn version_is_read_from_the_agents_package() {
    let env = env(&[("PATH", "/a:/n")]);
    let fs = MemoryFs::default()
        .file("/n/node", "")
        .link("/a/gemini", "/x/@google/gemini-cli/dist/deep/run.js")
        .file("/x/@google/gemini-cli/dist/deep/run.js", "")
        .plain("/x/@google/gemini-cli/dist/package.json", r#"{"type":"module"}"#)
        .plain(
            "/x/@google/gemini-cli/package.json",
            r#"{"name":"@google/gemini-cli","version":"0.62.0-nightly.1"}"#,
        )
        .plain("/x/package.json", r#"{"name":"@google/gemini-cli","version":"9.9.9"}"#);
    assert_eq!(find(info(), &search(&env), &fs).program.unwrap().version, Some(Version(0, 62, 0)));

    let volta = MemoryFs::default()
        .link("/a/gemini", "/volta/bin/volta-shim")
        .file("/volta/bin/volta-shim", "\u{7f}ELF")
        .plain(
            "/volta/tools/image/packages/@google/gemini-cli/lib/node_modules/@google/gemini-cli/package.json",
            r#"{"name":"@google/gemini-cli","version":"0.58.2"}"#,
        );
    let program = find(info(), &search(&env), &volta).program.unwrap();
    assert_eq!((program.path.to_str(), program.version), (Some("/a/gemini"), Some(Version(0, 58, 2))));
}

#[test]
fn npm_prefix_is_read_from_the_npm_configuration() {
    let env = env(&[("PATH", "/bin")]);
    let fs = MemoryFs::default()
        .file("/bin/node", "")
        .plain("/home/u/.npmrc", "fund=false\nprefix = ~/packages\n")
        .package("/m", "/home/u/packages/bin/gemini", "0.61.0");
    assert_eq!(won(&find(info(), &search(&env), &fs)).unwrap().1, Path::new("/home/u/packages/bin/gemini"));
}

/// Windows shims are resolved on every system, since only text is read.
#[test]
fn windows_shims_become_node_and_script() {
    let env =
        env(&[("Path", "/tools;/node"), ("PATHEXT", ".COM;.EXE;.BAT;.CMD;.VBS"), ("APPDATA", "/roaming")]);
    let cmd =
        "@ECHO off\r\n\"%_prog%\"  \"%dp0%\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n";
    let sh = "#!/bin/sh\nexec node \"$basedir/node_modules/@google/gemini-cli/bundle/gemini.js\" \"$@\"\n";
    let windows = Search { os: Os::Windows, ..search(&env) };
    let script = "/roaming/npm/node_modules/@google/gemini-cli/bundle/gemini.js";
    let package = || {
        MemoryFs::default().file("/node/node.exe", "").plain(script, "").plain(
            "/roaming/npm/node_modules/@google/gemini-cli/package.json",
            r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#,
        )
    };
    let shims: [(&str, &str); 3] = [("gemini.cmd", cmd), ("gemini.ps1", sh), ("gemini", sh)];
    for (name, text) in shims {
        let fs = package().file(&format!("/roaming/npm/{name}"), text);
        let program = find(info(), &windows, &fs).program.unwrap();
        assert_eq!(program.path, Path::new("/node/node.exe"), "{name}");
        assert_eq!(
            (program.args, program.version),
            (vec![script.to_owned()], Some(Version(0, 61, 0))),
            "{name}"
        );
    }

    // A `node` next to the shim is the one that the shim itself would use.
    let fs = package().file("/roaming/npm/gemini.cmd", cmd).file("/roaming/npm/node.exe", "");
    assert_eq!(find(info(), &windows, &fs).program.unwrap().path, Path::new("/roaming/npm/node.exe"));

    // The shell shim may be listed first, but Windows cannot start it; an executable needs no `node`.
    let fs = MemoryFs::default().file("/tools/gemini", "#!/bin/sh\necho hi\n").file("/node/gemini.exe", "MZ");
    let found = find(info(), &windows, &fs);
    assert_eq!(found.program.unwrap().path, Path::new("/node/gemini.exe"));
    let refused = found.looked.iter().find(|l| l.path == Path::new("/tools/gemini")).unwrap();
    assert_eq!(refused.note.as_deref(), Some("is a shell script, which Windows cannot start"));
}

#[test]
fn shim_without_node_is_reported() {
    let env = env(&[("PATH", "/tools")]);
    let cmd = "\"%dp0%\\x.js\" %*";
    let windows = Search { os: Os::Windows, ..search(&env) };
    let fs = MemoryFs::default().file("/tools/gemini.cmd", cmd).plain("/tools/x.js", "");
    let found = find(info(), &windows, &fs);
    assert_eq!(found.program, None);
    assert!(found.looked.iter().any(|l| l.note.as_deref() == Some("needs Node.js, which was not found")));
}

#[test]
fn install_stub_is_not_a_program() {
    let fs = MemoryFs::default().file("/bin/gemini", "echo \"the postinstall script was not run\" >&2\n");
    let env = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
    let found = find(info(), &Search::new(&env, Path::new("/h"), Path::new("/w")), &fs);
    assert_eq!(found.program, None);
    assert!(found.looked[0].note.as_deref().unwrap().contains("install script"), "{:?}", found.looked[0]);
}

#[test]
fn cli_is_the_agents_own_program_and_not_node_or_an_adapter() {
    let env = env(&[("PATH", "/bin")]);
    let bin = "/home/u/.nvm/versions/node/v20.1.0/bin";
    let fs = MemoryFs::default()
        .package("/m", &format!("{bin}/gemini"), "0.61.0")
        .file(&format!("{bin}/node"), "");
    let cli = |info: &AgentInfo<'_>, search: &Search<'_>, fs: &MemoryFs| {
        find_cli(info, search, fs).map(|path| path.to_string_lossy().into_owned())
    };
    assert_eq!(cli(info(), &search(&env), &fs), Some(format!("{bin}/gemini")));
    // A variable that names nothing is skipped.
    let stale = self::env(&[("PATH", bin), ("GEMINI_CLI_PATH", "/none")]);
    assert_eq!(cli(info(), &search(&stale), &fs), Some(format!("{bin}/gemini")));

    let claude = crate::agents::claude::Claude.info();
    let adapter = MemoryFs::default().file("/bin/claude-agent-acp", "x");
    assert_eq!(cli(&claude, &search(&env), &adapter), None);
    let local = adapter.file("/home/u/.claude/local/claude", "x");
    assert_eq!(cli(&claude, &search(&env), &local).as_deref(), Some("/home/u/.claude/local/claude"));
    let on_path = local.file("/bin/claude", "x").file("/opt/mine", "x");
    assert_eq!(cli(&claude, &search(&env), &on_path).as_deref(), Some("/bin/claude"));
    let named = self::env(&[("PATH", "/bin"), ("CLAUDE_CLI_PATH", "/opt/mine")]);
    assert_eq!(cli(&claude, &search(&named), &on_path).as_deref(), Some("/opt/mine"));
}
