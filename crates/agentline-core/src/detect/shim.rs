//! Parses the start scripts (shims) that package managers create instead of links, to find the script they start.

/// Returns the path of the JavaScript that a shim starts, as components relative to the directory of the shim.
///
/// npm, pnpm and yarn write three forms: `cmd` (`%~dp0` or `%dp0%`), PowerShell and sh (`$basedir`). All of them quote
/// the script after a variable for their own directory. Absolute paths of pnpm are ignored, because the relative path
/// is next to them.
pub(super) fn script(text: &str) -> Option<Vec<String>> {
    const DIR_VARIABLES: &[&str] = &["%~dp0", "%dp0%", "$basedir", "${basedir}", "$PSScriptRoot"];
    text.lines().filter(|line| !is_comment(line)).find_map(|line| {
        DIR_VARIABLES.iter().find_map(|variable| {
            line.match_indices(variable).find_map(|(at, _)| {
                let rest = &line[at + variable.len()..];
                let end = rest.find(['"', '\'']).or_else(|| rest.find(char::is_whitespace));
                let path = rest[..end.unwrap_or(rest.len())].trim();
                let is_script = [".js", ".mjs", ".cjs"].iter().any(|e| path.ends_with(e));
                is_script.then(|| parts(path))
            })
        })
    })
}

fn parts(path: &str) -> Vec<String> {
    path.split(['\\', '/']).filter(|p| !p.is_empty() && *p != ".").map(str::to_owned).collect()
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('#') || line.starts_with("::") || line.to_ascii_lowercase().starts_with("@rem ")
}

#[cfg(test)]
mod tests {
    use super::script;

    const SCRIPT: &[&str] = &["node_modules", "@google", "gemini-cli", "bundle", "gemini.js"];

    /// Shims in the forms that package managers write.
    const SAMPLES: &[(&str, &str)] = &[
        (
            "npm cmd",
            "@ECHO off\r\nGOTO start\r\n:find_dp0\r\nSET dp0=%~dp0\r\nEXIT /b\r\n:start\r\nSETLOCAL\r\nCALL :find_dp0\r\n\r\n\
             IF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n  SET PATHEXT=%PATHEXT:;.JS;=;%\r\n)\r\n\r\n\
             endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n",
        ),
        (
            "old npm cmd",
            "@IF EXIST \"%~dp0\\node.exe\" (\r\n  \"%~dp0\\node.exe\"  \"%~dp0\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n) ELSE (\r\n  \
             node  \"%~dp0\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n)\r\n",
        ),
        (
            "npm ps1",
            "#!/usr/bin/env pwsh\n$basedir=Split-Path $MyInvocation.MyCommand.Definition -Parent\n\n$exe=\"\"\n\
             if (Test-Path \"$basedir/node$exe\") {\n  & \"$basedir/node$exe\"  \"$basedir/node_modules/@google/gemini-cli/bundle/gemini.js\" $args\n}\n",
        ),
        (
            "npm sh",
            "#!/bin/sh\nbasedir=$(dirname \"$(echo \"$0\" | sed -e 's,\\\\,/,g')\")\n\nif [ -x \"$basedir/node\" ]; then\n  \
             exec \"$basedir/node\"  \"$basedir/node_modules/@google/gemini-cli/bundle/gemini.js\" \"$@\"\nelse\n  \
             exec node  \"$basedir/node_modules/@google/gemini-cli/bundle/gemini.js\" \"$@\"\nfi\n",
        ),
        (
            "yarn cmd",
            "@IF EXIST \"%~dp0\\node.exe\" (\r\n  \"%~dp0\\node.exe\"  \"%~dp0\\.\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n)\r\n",
        ),
    ];

    #[test]
    fn every_shim_format_resolves_to_its_script() {
        for (name, text) in SAMPLES {
            assert_eq!(script(text).as_deref(), Some(&SCRIPT.map_owned()[..]), "{name}");
        }
    }

    #[test]
    fn pnpm_shim_resolves_into_the_store() {
        let text = "@SETLOCAL\r\n@IF NOT DEFINED NODE_PATH (\r\n  @SET \"NODE_PATH=C:\\pnpm\\global\\5\\node_modules\"\r\n)\r\n\
            @IF EXIST \"%~dp0\\node.exe\" (\r\n  \"%~dp0\\node.exe\"  \"%~dp0\\global\\5\\node_modules\\@google\\gemini-cli\\bundle\\gemini.js\" %*\r\n)\r\n";
        let parts = script(text).unwrap();
        assert_eq!(parts[..2], ["global", "5"]);
        assert_eq!(parts[2..], SCRIPT.map_owned());
    }

    #[test]
    fn shim_target_may_be_in_a_parent_directory() {
        let text = "#!/bin/sh\nexec node \"$basedir/../lib/node_modules/x/cli.mjs\" \"$@\"\n";
        assert_eq!(script(text).unwrap(), ["..", "lib", "node_modules", "x", "cli.mjs"]);
    }

    #[test]
    fn other_text_is_not_a_shim() {
        for text in [
            "",
            "#!/usr/bin/env node\nrequire('./x.js')\n",
            "# \"$basedir/a.js\"\n",
            "exec \"$basedir/node\"\n",
        ] {
            assert_eq!(script(text), None, "{text:?}");
        }
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|s| (*s).to_owned()).collect()
        }
    }
}
