//! Tests settings on a real disk: which files are found, and how unreadable ones are reported.
#![expect(clippy::unwrap_used, reason = "a test must fail if its setup fails")]

use agentline::config::{find_layers, workspace_file};
use agentline_core::{Config, Problems};
use std::{ffi::OsString, fs, path::Path};

/// A home and a workspace below it.
struct Machine {
    temp: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { temp: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.path("home/project/deep/er")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        fs::canonicalize(self.temp.path()).unwrap().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    fn build(&self, workspace: &str, variables: &[(&str, &str)]) -> Result<Config, Problems> {
        let variables = variables.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        Config::build(&find_layers(&self.path(workspace), Some(&self.path("home")), variables))
    }

    fn config(&self, workspace: &str, variables: &[(&str, &str)]) -> Config {
        self.build(workspace, variables).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// Returns all problems, with the test's directory removed from the paths.
    fn problems(&self, workspace: &str, variables: &[(&str, &str)]) -> String {
        let problems = self.build(workspace, variables).unwrap_err().to_string();
        problems.replace(self.path("").to_str().unwrap(), "/")
    }
}

#[test]
fn defaults_apply_without_files_and_variables() {
    let config = Machine::new().config("home/project", &[("PATH", "/bin")]);
    assert_eq!(config, Config::build(&[]).unwrap());
}

#[test]
fn user_file_is_below_the_workspace_file_and_the_environment() {
    let machine = Machine::new();
    machine.write("home/.config/agentline/config.toml", "model = 'user'\nname = 'user'\nresume = 'user'");
    machine.write("home/project/agentline.toml", "name = 'workspace'\nresume = 'workspace'");
    let config = machine.config("home/project", &[("AGENTLINE_RESUME", "latest")]);
    let request = &config.request;
    let found = [&request.model, &request.name, &request.resume].map(|value| value.as_deref().unwrap());
    assert_eq!(found, ["user", "workspace", "latest"]);
    assert_eq!(config.origins["name"], machine.path("home/project/agentline.toml").display().to_string());
    assert_eq!(config.origins["resume"], "environment");
}

#[test]
fn only_the_nearest_file_above_the_workspace_applies() {
    let machine = Machine::new();
    machine.write("home/project/agentline.toml", "model = 'near'\nworking_dir = 'x'\nrecord = '~/t'");
    machine.write("home/agentline.toml", "model = 'far'\nname = 'far'");
    let config = machine.config("home/project/deep/er", &[("AGENTLINE_TRUST", "full")]);
    assert_eq!(config.request.model.as_deref(), Some("near"));
    assert_eq!(config.request.name, None);
    assert_eq!(
        config.request.working_dir,
        Some(machine.path("home/project/x")),
        "relative to the file's directory"
    );
    assert_eq!(config.request.record, Some(machine.path("home/t")));
}

#[test]
fn search_ends_at_home() {
    let machine = Machine::new();
    machine.write("agentline.toml", "model = 'outside'");
    assert_eq!(machine.config("home/project", &[]).request.model, None);
    fs::create_dir(machine.path("elsewhere")).unwrap();
    assert_eq!(machine.config("elsewhere", &[]).request.model.as_deref(), Some("outside"));
}

#[test]
fn named_user_file_replaces_the_default_one() {
    let machine = Machine::new();
    machine.write("home/.config/agentline/config.toml", "model = 'usual'");
    machine.write("xdg/agentline/config.toml", "model = 'xdg'");
    machine.write("mine.toml", "model = 'mine'");
    let (xdg, mine) = (machine.path("xdg"), machine.path("mine.toml"));
    let model = |variables: &[(&str, &str)]| machine.config("home/project", variables).request.model.unwrap();
    assert_eq!(model(&[]), "usual");
    assert_eq!(model(&[("XDG_CONFIG_HOME", xdg.to_str().unwrap())]), "xdg");
    assert_eq!(model(&[("AGENTLINE_CONFIG", mine.to_str().unwrap())]), "mine");
    assert_eq!(model(&[("AGENTLINE_CONFIG", ""), ("XDG_CONFIG_HOME", "relative")]), "usual");
}

#[test]
fn invalid_settings_file_is_reported_with_all_other_problems() {
    let machine = Machine::new();
    let missing = machine.path("gone.toml");
    let variables = [("AGENTLINE_CONFIG", missing.to_str().unwrap()), ("AGENTLINE_TIMEOUT", "0")];
    machine.write("home/project/agentline.toml", b"model = 'caf\xe9'");
    assert_eq!(
        machine.problems("home/project", &variables),
        "`AGENTLINE_CONFIG`: `/gone.toml` does not exist\n  hint: create it, or unset AGENTLINE_CONFIG\n\
         `/home/project/agentline.toml`: is not valid UTF-8 from line 1 on\n  hint: save it as UTF-8\n\
         `AGENTLINE_TIMEOUT`: must be greater than 0, got `0`\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`"
    );
    machine.write("home/project/agentline.toml", "timeout = = 3");
    let problems = machine.problems("home/project", &[]);
    assert!(problems.starts_with("`/home/project/agentline.toml:1:11`: invalid TOML: "), "{problems}");
    machine.write("home/project/agentline.toml", vec![b'#'; (1 << 20) + 1]);
    assert_eq!(
        machine.problems("home/project", &[]),
        "`/home/project/agentline.toml`: is larger than 1 MiB\n  hint: remove it, or replace it with a TOML file"
    );
    fs::create_dir(machine.path("home/project/deep/agentline.toml")).unwrap();
    assert_eq!(
        machine.problems("home/project/deep", &[]),
        "`/home/project/deep/agentline.toml`: is a directory, not a file\n  hint: remove it, or replace it with a TOML file"
    );
}

#[test]
fn byte_order_mark_is_accepted() {
    let machine = Machine::new();
    machine.write("home/project/agentline.toml", "\u{feff}model = 'm'\r\nname = 'n'\r\n");
    let config = machine.config("home/project", &[]);
    assert_eq!((config.request.model.as_deref(), config.request.name.as_deref()), (Some("m"), Some("n")));
}

#[test]
fn price_file_is_read_from_the_configured_path() {
    let machine = Machine::new();
    machine.write("home/project/agentline.toml", "prices_file = 'my/prices.toml'");
    let build = || {
        let trust = [("AGENTLINE_TRUST".into(), "full".into())];
        let layers = find_layers(&machine.path("home/project"), Some(&machine.path("home")), trust);
        agentline::config::build(&layers)
    };
    let missing = build().unwrap_err().to_string();
    assert!(missing.contains("does not exist") && missing.contains("prices.toml"), "{missing}");
    machine.write("home/project/my/prices.toml", "[models.'my-model']\ninput = 1\noutput = 2");
    let config = build().unwrap();
    assert_eq!(config.prices().of("my-model").map(|price| price.output), Some(2.0));
    assert!(config.prices().is_yours("my-model") && !config.prices().is_yours("gemini-2.5-pro"));
    machine.write("home/project/my/prices.toml", "[models.'my-model']\ninput = 'much'\noutput = 2");
    let wrong = build().unwrap_err().to_string();
    assert!(wrong.contains("prices.toml") && wrong.contains("my-model"), "{wrong}");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::{
        os::unix::{
            ffi::OsStringExt,
            fs::{PermissionsExt, chown, symlink},
        },
        process::Command,
    };

    #[test]
    fn non_utf8_variable_is_named() {
        let machine = Machine::new();
        let variables = [(OsString::from("AGENTLINE_MODEL"), OsString::from_vec(vec![0xff]))];
        let layers = find_layers(&machine.path("home"), None, variables);
        assert_eq!(
            Config::build(&layers).unwrap_err().to_string(),
            "`AGENTLINE_MODEL`: is not valid UTF-8\n  hint: use UTF-8, or unset it"
        );
    }

    #[test]
    fn link_out_of_its_directory_is_read_only_with_full_trust() {
        let machine = Machine::new();
        machine.write("home/real.toml", "model = 'real'");
        symlink(machine.path("home/real.toml"), machine.path("home/project/agentline.toml")).unwrap();
        for (workspace, trust, model) in [
            ("home/project", "run", None),
            ("home/project/deep", "run", None),
            ("home/project", "full", Some("real")),
        ] {
            let config = machine.config(workspace, &[("AGENTLINE_TRUST", trust)]);
            assert_eq!(config.request.model.as_deref(), model, "{workspace} {trust}");
            let codes: Vec<&str> = config.notices.iter().map(|notice| notice.code.as_str()).collect();
            assert_eq!(codes.is_empty(), model.is_some(), "{:?}", config.notices);
            assert!(codes.iter().all(|code| *code == "workspace_config"));
        }
        fs::remove_file(machine.path("home/project/agentline.toml")).unwrap();
        machine.write("home/project/deep/inside.toml", "model = 'inside'");
        symlink("deep/inside.toml", machine.path("home/project/agentline.toml")).unwrap();
        assert_eq!(machine.config("home/project", &[]).request.model.as_deref(), Some("inside"));
    }

    #[test]
    fn user_file_is_trusted_in_any_location() {
        let machine = Machine::new();
        machine.write("home/project/agentline.toml", "record = 'tape'");
        let file = machine.path("home/project/agentline.toml");
        let config = machine.config("home/project", &[("AGENTLINE_CONFIG", file.to_str().unwrap())]);
        assert!(config.request.record.is_some() && config.notices.is_empty(), "{:?}", config.notices);
    }

    #[test]
    fn links_are_followed_and_pipes_are_not_awaited() {
        let machine = Machine::new();
        machine.write("home/project/real.toml", "model = 'real'");
        symlink("real.toml", machine.path("home/project/agentline.toml")).unwrap();
        assert_eq!(machine.config("home/project", &[]).request.model.as_deref(), Some("real"));
        fs::remove_file(machine.path("home/project/real.toml")).unwrap();
        assert_eq!(
            machine.problems("home/project", &[]),
            "`/home/project/agentline.toml`: is a broken link\n  hint: fix or remove the link"
        );
        let pipe = machine.path("home/project/deep/agentline.toml");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(
            machine.problems("home/project/deep", &[]),
            "`/home/project/deep/agentline.toml`: is not a regular file\n  hint: remove it, or replace it with a TOML file"
        );
    }

    #[test]
    fn file_of_another_user_above_the_workspace_is_ignored() {
        let machine = Machine::new();
        machine.write("agentline.toml", "model = 'planted'");
        fs::create_dir(machine.path("mine")).unwrap();
        let file = machine.path("agentline.toml");
        let found = || workspace_file(&machine.path("mine"), None);
        assert_eq!(found(), Some(file.clone()));
        // Only root can change the owner of files; for other users, the test ends here.
        if chown(&file, Some(65533), None).is_ok() {
            assert_ne!(found(), Some(file.clone()));
            chown(machine.path("mine"), Some(65533), None).unwrap();
            assert_eq!(found(), Some(file));
        }
    }

    /// Root can read everything, so the test runs itself again as an unprivileged user.
    #[test]
    fn unreadable_file_is_reported_with_a_hint() {
        const INSIDE: &str = "AGENTLINE_TEST_UNREADABLE_SETTINGS";
        if let Some(root) = std::env::var_os(INSIDE) {
            return read_as_unprivileged_user(Path::new(&root));
        }
        let machine = Machine::new();
        machine.write("home/project/agentline.toml", "model = 'm'");
        for folder in ["", "home", "home/project"] {
            fs::set_permissions(machine.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(machine.path("home/project/agentline.toml"), fs::Permissions::from_mode(0o000))
            .unwrap();
        if fs::read(machine.path("home/project/agentline.toml")).is_err() {
            return read_as_unprivileged_user(&machine.path(""));
        }
        // This user may not be able to read the build directory either.
        let copy = machine.path("test");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&copy);
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        command.current_dir(machine.path("")).env(INSIDE, machine.path(""));
        command.args(["--exact", "settings::unix::unreadable_file_is_reported_with_a_hint", "--nocapture"]);
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
    }

    fn read_as_unprivileged_user(root: &Path) {
        let file = root.join("home/project/agentline.toml");
        let layers = find_layers(&root.join("home/project"), Some(&root.join("home")), []);
        assert_eq!(
            Config::build(&layers).unwrap_err().to_string(),
            format!(
                "`{0}`: cannot be read: Permission denied (os error 13)\n  hint: make it readable with `chmod u+r {0}`, or remove it",
                file.display()
            )
        );
    }
}
