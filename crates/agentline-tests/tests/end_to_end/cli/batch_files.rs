//! Tests that all files of a run count: in checks, in predictions, and when `agentline batch grade` restores them, also
//! those that Git ignores, empty directories, links, permissions and repositories.

use crate::cli::batch::{lines, report, suite, user};
use crate::cli::batch_safety::methods;
use crate::cli::overlay;
use crate::cli::user::User;
use serde_json::Value;
use std::{collections::BTreeMap, fs};

/// Returns the class and the reasons of each case.
fn classes(user: &User) -> BTreeMap<String, (String, String)> {
    let report = report(user);
    let cases = report["cases"].as_array().unwrap();
    let class = |case: &Value| {
        let run = &case["runs"][0];
        let reason = format!("{} {}", run["message"], run["checks"]);
        (case["id"].as_str().unwrap().to_owned(), (run["class"].as_str().unwrap().to_owned(), reason))
    };
    cases.iter().map(class).collect()
}

#[test]
fn files_that_the_template_ignores_are_judged_and_graded_like_others() {
    let user = user();
    user.write("template/.gitignore", "*.log\nbuilt/\n");
    for name in ["in.txt", "local.log", "built/old", "gone/file"] {
        user.write(&format!("template/{name}"), "1\n");
    }
    overlay::git(&user.path("template"), &["init", "--quiet"]);
    overlay::commit(&user.path("template"));
    let work = [
        "echo 2 > local.log",
        "rm built/old",
        "echo 3 > built/new",
        "mkdir -p out/empty",
        "rm -r gone",
        "chmod 600 in.txt",
        "ln -s in.txt link",
        "ln -s $PWD/in.txt absolute",
        "git config agent.was here",
        "printf '\\\\000\\\\377' > picture.png",
    ];
    let found = [
        "cat local.log | grep -q 2",
        "test ! -e built/old",
        "grep -q 3 built/new",
        "test -d out/empty",
        "test ! -e gone",
        "stat -c %a in.txt | grep -qx 600",
        "readlink link | grep -qx in.txt",
        "cmp absolute in.txt",
        "git config agent.was | grep -qx here",
        "test -s picture.png",
    ];
    let checks: String = found.iter().map(|line| format!("{{command: \"{line}\"}}, ")).collect();
    let cases = [
        ("state", "", work.join("; "), checks.as_str(), "passed"),
        ("named", "", "echo 2 > local.log".to_owned(), "{unchanged: \"*.log\"}", "failed"),
        ("removed", "", "rm built/old".to_owned(), "{unchanged: \"built/**\"}", "failed"),
        ("made", "", "echo 2 > new.log".to_owned(), "{unchanged: \"*.log\"}", "failed"),
        (
            "build",
            "",
            "echo 2 > built/new; echo 2 > out.txt".to_owned(),
            "{only_changed: out.txt}, {unchanged: local.log}",
            "passed",
        ),
        ("setup", "setup: echo 2 > local.log, ", "true".to_owned(), "{unchanged: local.log}", "passed"),
        (
            "large",
            "",
            "truncate -s 100M big.log".to_owned(),
            "{file_exists: big.log}, {file_exists: in.txt}",
            "passed",
        ),
    ];
    let text: String = cases
        .iter()
        .map(|(id, keys, work, checks, _)| {
            format!("- {{id: {id}, {keys}prompt: \"run {work}\\nsay done\", checks: [{checks}]}}\n")
        })
        .collect();
    let with = |text: &str| suite(&user, &format!("workspace: template\ncases:\n{text}"));
    for method in methods(&user) {
        with(&text);
        let args =
            ["batch", "suite.yaml", "--dir", "exp", "--isolate", method, "--rerun", "all", "-o", "jsonl"];
        let done = user.agentline(&args);
        assert_eq!((done.code, lines(&done).len()), (1, cases.len()), "{method}: {}{}", done.out, done.err);
        let in_batch = classes(&user);
        for (id, .., class) in &cases {
            assert_eq!(in_batch[*id].0, *class, "{method} {id}: {}", in_batch[*id].1);
        }
        assert!(in_batch["named"].1.contains("local.log changed"), "{}", in_batch["named"].1);
        let graded = user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
        assert_eq!(graded.code, 1, "{method}: {}{}", graded.out, graded.err);
        let in_grade = classes(&user);
        for (id, .., class) in cases.iter().filter(|case| case.0 != "large") {
            assert_eq!(in_grade[*id].0, *class, "{method} {id}: {}", in_grade[*id].1);
        }
        // What is too large to be stored is not taken for missing.
        let (class, reason) = &in_grade["large"];
        assert!(class == "infrastructure" && reason.contains("that Git ignores, with big.log"), "{reason}");
        with(&text.replace("{file_exists: big.log}, ", ""));
        assert_eq!(user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]).code, 1);
        assert_eq!(classes(&user)["large"].0, "passed", "{method}");
        // A prediction has files that are not text, as Git writes them.
        let predictions = user.agentline(&["report", "exp", "-o", "predictions"]).out;
        let prediction = predictions.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let prediction = prediction.into_iter().find(|line| line["instance_id"] == "state").unwrap();
        user.write("patch", prediction["model_patch"].as_str().unwrap());
        let applied = user.path(&format!("applied-{method}"));
        overlay::git(&user.path("."), &["clone", "--quiet", "template", applied.to_str().unwrap()]);
        overlay::git(&applied, &["apply", user.path("patch").canonicalize().unwrap().to_str().unwrap()]);
        assert_eq!(fs::read(applied.join("picture.png")).unwrap(), [0, 255], "{method}");
        assert!(applied.join("link").is_symlink() && !applied.join("gone").exists(), "{method}");
        assert!(!applied.join("local.log").exists() && !applied.join("built").exists(), "{method}");
    }
}
