//! Tests which commands a rule about a program denies, and which it does not affect.

use super::*;

/// Spellings of one denied command, collected from attacks on the rules.
const SPELLINGS: &str = include_str!("../../../tests/data/spellings.json");

#[derive(serde::Deserialize)]
struct Spelling {
    name: String,
    command: String,
    /// Whether it runs `rm`. A rule about `rm` does not cover other ways to delete files.
    runs_rm: bool,
}

#[test]
fn no_spelling_of_a_denied_command_is_allowed() {
    let spellings: Vec<Spelling> = serde_json::from_str(SPELLINGS).unwrap();
    assert!(spellings.len() >= 239);
    let policy = policy(M::Bypass, "-Bash(rm *)");
    for Spelling { name, command, runs_rm } in &spellings {
        let mut ask = ask(Bash("x"));
        ask.command = Some(command.clone());
        let decision = policy.decide(&ask, &|path| policy.resolve(path));
        assert_eq!(decision.name(), if *runs_rm { "deny" } else { "allow" }, "{name}: {command:?}");
        assert_eq!(decision.ruling().rule.as_deref(), runs_rm.then_some("Bash(rm *)"), "{name}");
    }
}

/// Commands that a rule about `rm` denies, because they start `rm` or because the program cannot be determined.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "rule",
        &[
            "rm x",
            "/bin/rm x",
            "'rm' x",
            "r\\m x",
            "A=1 B=2 rm x",
            "env -i A=1 rm x",
            "sudo -u root rm x",
            "nohup nice rm x",
            "! rm x",
            "time rm x",
            "bash -c 'rm x'",
            "sh -lc \"ls; rm x\"",
            "bash -o pipefail -ec 'rm x'",
            "bash -c \"bash -c 'rm x'\"",
            "git $(rm x)",
            "git `rm x`",
            "git \"$(git `rm x`)\"",
            "git <(rm x)",
            "tee >(rm x)",
            "(rm x)",
            "( (rm x) )",
            "((rm x); true)",
            "{ rm x; }",
            "if true; then rm x; fi",
            "while rm x; do :; done",
            "until ! rm x; do :; done",
            "for i in 1; do rm x; done",
            "case a in a) rm x;; esac",
            "case $(rm x) in a) ;; esac",
            "[[ -n $(rm x) ]]",
            "f() { rm x; }; f",
            "function f { rm x; }; f",
            "git # it's\nrm x",
            "git \"$(git # )\nrm x\n)\"",
            "find | xargs -0 rm x",
            "xargs -I{} -n1 rm {}",
            "find . -name x -exec rm {} \\;",
            "find . -execdir rm {} +",
            "sh <<'E'\nrm x\nE",
            "bash -s <<< 'rm x'",
            "trap 'rm x' EXIT",
            "timeout -k 1 5 rm x",
            "busybox rm x",
            "flock lock -c 'rm x'",
            "script -qc 'rm x' out",
            "watch -n 1 rm x",
            "command -- rm x",
            "A=$(rm x)",
            "a=($(rm x))",
            "git ${A:-$(rm x)}",
            "git > $(rm x)",
            "rm $X",
            "coproc rm x",
            "\\rm\tx",
            "$'\\x72m' x",
        ],
    ),
    (
        "undeterminable_command",
        &[
            "$X x",
            "alias y=rm; y x",
            "cat <<E\n$(rm x)\nE",
            "${X} x",
            "r${Y}m x",
            "r$Y x",
            "\"$X\" x",
            "$(echo rm) x",
            "{rm,x}",
            "/bin/r[m] x",
            "/bin/r? x",
            "~ x",
            "eval rm x",
            "echo 'rm x' | sh",
            "sh",
            "sh -s",
            "sh < file",
            "sh /dev/stdin",
            "sh <(echo rm x)",
            "sh -c \"$X\"",
            "sh -c '$0 x' rm",
            "source /dev/stdin",
            ". <(echo rm x)",
            "env -S 'rm x'",
            "env $X rm x",
            "timeout $T rm x",
            "xargs $X",
            "xargs sh -c",
            "echo rm | xargs -I{} {} x",
            "echo 'rm x' | xargs -I% sh -c %",
            "find . $X",
            "find . -exec $X {} \\;",
            "trap \"$X\" EXIT",
            "hash -p /bin/rm ls; ls x",
            "PS4='$(rm x)' bash -xc true",
            "BASH_ENV=x bash y",
            "x='a[$(rm x)]'; echo $((x))",
            "x=y; echo $((x))",
            "y='$(rm x)'; echo ${y@P}",
            "test -v 'a[$(rm x)]'",
            "printf -v 'a[$(rm x)]' 1",
            "mapfile -C 'rm x' -c 1 a",
            "set -- rm x; \"$@\"",
            "a=(rm x); \"${a[@]}\"",
            "git 'open",
            "git \u{b}rm x",
            "git\rrm x",
            "sudo --unknown rm x",
            "parallel rm ::: x",
            "select y in a; do rm x; done",
            "/proc/self/exe -c 'rm x'",
            "=rm x",
            "for ((;;)); do rm x; done",
            "echo $(sh <<'E'\nrm x\nE\n)",
            "i=$X; echo ${a[i]}",
            "i=$X; echo ${s:i:2}",
            "test 'a[0$(rm x)]' -eq 1",
            "wrapper rm x",
            "GIT_PAGER='rm x' git log",
            "git -c core.pager='rm x' log",
            "rg --pre rm x",
            "PATH=bin ls",
            "GIT_PAGER=\"$X\" git log",
            "export EDITOR=$(echo ls); git commit",
            "unset PATH; ls",
            "shopt -s extglob; ls",
            "set -o posix; ls",
            "set -k; ls",
            "set $X; ls",
            "alias ll='ls -l'",
            "~/x y",
            "`echo \\`ls\\``",
            "cat <<E\n$((1))\nE",
            "cat <<E\n${x:-y}\nE",
            "git $X",
            "git log \"$X\"",
            "git add *.rs",
            "git \"s$X\"",
            "git log -m \"$X\"",
            "git --no-pager \"$X\" log",
            "git commit -m $MSG",
            "tar --exclude -f \"$X\"",
            "tar -C -C \"$X\"",
            "git -C -C \"$X\" log",
            "ls | xargs git add",
            "find . -exec git {} \\;",
            "npm \"$X\"",
            "tar \"$X\" a",
            "cargo run -- rm x",
            "bash -H -c ls",
            "bash -o posix -c ls",
            "[ \"$X\" \"$Y\" ]",
            "echo \"a[b[0]+\\$(ls)]\"",
            "echo \"$$(ls)\"",
            "echo $$'a'",
            "MSG=$(cat <<'E'\na\nE\n)",
            "find . -exec grep \"$X\" {} \\;",
            "find . -newermt -name \"$X\"",
            "find . -name -exec",
            "ls | xargs --max-args 2 ls",
            "timeout \"$T\" make",
            "echo {a[b]}>/dev/null",
            "{v}>f ls",
        ],
    ),
];

/// Commands that the rule does not affect, although they look similar.
const PERMITTED: &[&str] = &[
    "ls",
    "rmdir x",
    "echo rm x",
    "git commit -m 'rm x; rm x'",
    "git commit -m \"$(cat <<'EOF'\nrm x (it's gone)\nEOF\n)\"",
    "cat > a.js <<'EOF'\nf(`${rm}`); // rm x\nEOF",
    "for f in *.txt; do echo \"$f\"; n=$((n+1)); done",
    "if [ -n \"$X\" ] && [[ $Y == a* ]]; then cargo build 2>&1 | tail -3; fi",
    "make -j$(nproc)",
    "bash build.sh",
    "sh -c 'ls; cd src'",
    "find . -name '*.rs' -newer x",
    "grep -rn rm . | head -5",
    "python3 -c 'print(1)'",
    "cd src && A=1 cargo test -- --nocapture",
    "x=$(git rev-parse HEAD); echo $x",
    "command -v rm",
    "awk '{print $(NF)}' a",
    "echo done",
    "git status",
    "cargo test",
    "npm run build",
    "ls -la | grep rm",
    "git rm --cached x",
    "docker rm x",
    "docker image rm x",
    "npm rm left-pad",
    "sed -n 1p f",
    "for f in *.rs; do echo $f; done",
    "cd src && make",
    "while IFS= read -r line; do echo \"$line\"; done < f",
    "export A=1 B=\"$C\"; make",
    "f() { local x=$1; echo \"$x\"; }; f a",
    "git log --format='%h `a[0]` and `b`'",
    "for k in \"${!a[@]}\"; do echo \"$k\"; done",
    "tar czf a.tgz src",
    "which rm; type rm; man rm",
    "sh -c 'make 2>&1 | tail -3; echo $((1+1))'",
    "printf '%s\\n' \"$x\" > f",
    "grep -c '[a-z]' f",
    "[ -f x ] && test \"$y\" = rm",
    "env A=1 make",
    "a=(1 2); echo ${a[0]} ${a[i+1]} ${#a[@]}",
    "s=abc; echo ${s:0:2}",
    "git commit -m \"$MSG\"",
    "git commit -am \"$MSG\"",
    "git -C \"$DIR\" status",
    "git -C src --no-pager log --format=\"$F\" -- \"$f\"",
    "git checkout -b \"$BRANCH\"",
    "git add src/*.rs",
    "git push -u origin main",
    "git show \"HEAD:$f\"",
    "git log -S 'a::b'",
    "git rebase main",
    "GIT_PAGER=cat EDITOR=vim git log",
    "git grep -n rm",
    "tar xf \"$f\"",
    "docker run --rm -it alpine sh",
    "docker compose rm",
    "docker run --rm -v \"$PWD\":/w alpine ls /w",
    "git commit --amend -m \"$MSG\"",
    "git add -- \"$f\"",
    "gh pr create --draft --title \"$T\" --body \"$B\"",
    "cargo test --package \"$P\" -- rm_works",
    "pip install -r requirements.txt",
    "sort -u a.txt",
    "[ $? -eq 0 ] && [ $X = y ] || [ \"$A\" = \"$B\" ]",
    "set -euo pipefail; set +x; set -- a b; ls",
    "shopt -s nullglob; ls",
    "echo ${x:-a} \"${y:-\"b c\"}\" ${x//\\//_} ${x%.*}",
    "cat <<E > f\n$A ${B} \\$(c) \\`d\\`\nE",
    "build() { make \"$1\"; }; build all",
    "echo $'a\\tb'",
    "n=3; echo $((n * 2 + m)); [[ $n -gt 2 ]]",
    "wrapper --rm x",
    "echo $$ \"$$\" \"a $$ b\" > pid.$$",
    "kill -0 $$ && echo \"$$\" $$\"x\"",
    "cat > Makefile <<'EOF'\nall:\n\tfor f in $$(ls); do echo $${f}; done\nEOF",
    "git add -A && git commit -m \"$(cat <<'EOF'\nDo not rm $$(x)\n\n- it's \"done\"\nEOF\n)\" && git push",
    "find src -type f ! -name \"$X\" -o -mtime -1 -print",
    "find . -path './a*' -prune -o -name \"*.$X\" -exec grep -l rm {} +",
    "ls | xargs --max-args=2 --verbose ls",
    "flock \"/tmp/$X.lock\" make",
    "timeout 5 make \"$X\"",
    "awk '{print}' f; echo {a,b} {} @{u}",
    "echo a[0-9] $(date) *.rs",
    "gh pr create --title \"Fix it\" --body \"$(cat <<'EOF'\n## rm\nEOF\n)\"",
];

#[test]
fn denied_program_is_found_anywhere_in_a_command() {
    let policy = policy(M::Bypass, "-Bash(rm *)");
    let decide = |command: &str| {
        let mut ask = ask(Bash("x"));
        ask.command = Some(command.to_owned());
        let decision = policy.decide(&ask, &|path| policy.resolve(path));
        format!("{} {}", decision.name(), decision.ruling().reason.as_deref().unwrap_or_default())
    };
    let mut wrong = Vec::new();
    for (reason, commands) in REFUSED {
        wrong.extend(
            commands.iter().filter(|c| decide(c) != format!("deny {reason}")).map(|c| (*c, decide(c))),
        );
    }
    wrong.extend(PERMITTED.iter().filter(|c| decide(c) != "allow bypass").map(|c| (*c, decide(c))));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unknown_arguments_count_as_possibly_denied() {
    for (rules, command, expected) in [
        ("-Bash(git push *)", "git push origin", "deny rule Bash(git push *)"),
        ("-Bash(git push *)", "git $X", "deny rule Bash(git push *)"),
        ("-Bash(git push *)", "git p$X", "deny rule Bash(git push *)"),
        ("-Bash(git push *)", "git pu{sh,ll}", "deny rule Bash(git push *)"),
        ("-Bash(git push *)", "git log $X", "deny rule Bash(git push *)"),
        ("-Bash(make install *)", "make $X", "deny rule Bash(make install *)"),
        ("-Bash(make install *)", "make build $X", "allow mode bypass"),
        ("-Bash(git push *)", "echo $X", "allow mode bypass"),
        ("-Bash(git push)", "git $X", "deny rule Bash(git push)"),
        ("?Bash(rm *)", "$X", "ask rule Bash(rm *)"),
        ("-Bash(rm *) +Bash($X y)", "$X y", "allow rule Bash($X y)"),
        ("-Bash(rm *) +Bash", "$X y", "deny rule Bash(rm *)"),
        ("-Write", "$X y", "allow mode bypass"),
    ] {
        let policy = policy(M::Bypass, rules);
        let mut ask = ask(Bash("x"));
        ask.command = Some(command.to_owned());
        assert_eq!(decided(&policy, &ask), expected, "{rules} {command}");
    }
}

#[test]
fn undetermined_commands_match_no_allow_pattern() {
    for (rule, command, expected) in [
        ("Bash(git status*)", "git status", "allow"),
        ("Bash(git status*)", "git status ${x:-<(touch a)}", "deny"),
        ("Bash(git status*)", "git status ${x:->(touch a)}", "deny"),
        ("Bash(git status*)", "git status ${x:-`touch a`}", "deny"),
        ("Bash(git status*)", "git status \"${x:-<(touch a)}\"", "deny"),
        ("Bash(git status*)", "git status $X", "deny"),
        ("Bash(git grep *)", "git grep a", "allow"),
        ("Bash(git grep *)", "git grep -Otouch a", "deny"),
        ("Bash(git grep *)", "git grep --op=touch a", "deny"),
        ("Bash(git commit *)", "git commit -m \"$MSG\"", "allow"),
        ("Bash(git clone *)", "git clone --u='touch a' . x", "deny"),
        ("Bash(cat *)", "cat <<E\nE\\\n\ntouch a\nE\n", "deny"),
        ("Bash(alias *)", "alias ls=touch", "deny"),
        ("Bash(set *)", "set -o history -H", "deny"),
        ("Bash(echo *)", "echo ${${<<E}\nE", "deny"),
        ("Bash(echo *)", "echo \"$$\"", "allow"),
        ("Bash(echo *)", "echo a[0-9]* {b,c}>/dev/null", "allow"),
        ("Bash(echo *)", "echo {a['$(touch x)']}>/dev/null", "deny"),
        ("Bash(echo *)", "echo {a[b]}>/dev/null", "deny"),
        ("Bash(echo *)", "echo $'a\\n'", "allow"),
        ("Bash(echo *)", "echo $'\\' ; touch a\necho 'x #'", "deny"),
        ("Bash(find *)", "find . -name \"$X\"", "allow"),
        ("Bash(find *)", "find . -exec echo \"$S\" -exec touch a \\;", "deny"),
        ("Bash(xargs ls *)", "xargs --max-lines touch", "deny"),
        ("Bash(flock *)", "flock \"$X\" echo touch a", "deny"),
        ("Bash(echo *)", "echo \"$$(\" ; touch a ; echo \")\"", "deny"),
        ("Bash(echo *)", "echo \"$${\" ; touch a ; echo \"}\"", "deny"),
        ("Bash(echo *)", "echo \"$\\\n$(\" ; touch a ; echo \")\"", "deny"),
        ("Bash(echo *)", "echo a \\\n# '\necho '$(cat <<'E'\n'\ntouch a\necho '\nE\n)'", "deny"),
    ] {
        let mut ask = ask(Bash("x"));
        ask.command = Some(command.to_owned());
        let policy = policy(M::Deny, &format!("+{rule}"));
        assert_eq!(policy.decide(&ask, &|path| policy.resolve(path)).name(), expected, "{rule} {command}");
    }
}

#[test]
fn denied_names_are_found_in_long_commands() {
    let words = |count: usize| (0..count).map(|word| format!("w{word} ")).collect::<String>();
    let policy = policy(M::Bypass, "-Bash(rm *)");
    for (text, expected) in [
        ("a ".repeat(10_000), "allow"),
        ("a ".repeat(10_000) + "rm x", "deny"),
        (words(1_000), "allow"),
        (words(5_000), "deny"),
    ] {
        let mut ask = ask(Bash("x"));
        ask.command = Some(format!("wrapper '{text}'"));
        assert_eq!(policy.decide(&ask, &|path| policy.resolve(path)).name(), expected);
    }
}

#[test]
#[cfg(not(windows))]
fn each_program_path_is_resolved_once() {
    let policy = policy(M::Bypass, "-Bash(rm *)");
    for (command, calls, expected) in [
        ("/usr/bin/perl -v\n".repeat(3_000), 1, "allow"),
        ((0..32).map(|at| format!("./a{at}\n")).collect(), 32, "allow"),
        ((0..1_000).map(|at| format!("./a{at}\n")).collect(), 32, "deny"),
    ] {
        let resolved = std::cell::Cell::new(0);
        let mut ask = ask(Bash("x"));
        ask.command = Some(command);
        let decision = policy.decide(&ask, &|path| {
            resolved.set(resolved.get() + 1);
            policy.resolve(path)
        });
        assert_eq!((resolved.get(), decision.name()), (calls, expected));
    }
}

#[test]
#[cfg(unix)]
fn rule_with_a_program_path_matches_every_spelling() {
    let path = super::policy(M::Bypass, "").resolve("deploy.sh").path;
    for (rule, command, expected) in [
        ("./deploy.sh *", "./deploy.sh a", "deny"),
        ("./deploy.sh *", ".//deploy.sh a", "deny"),
        ("./deploy.sh *", "././deploy.sh a", "deny"),
        ("./deploy.sh *", "sub/../deploy.sh a", "deny"),
        ("./deploy.sh *", "PLACE a", "deny"),
        ("./deploy.sh *", "cd sub && ../deploy.sh a", "deny"),
        ("./deploy.sh *", "env -C sub ../deploy.sh a", "deny"),
        ("./deploy.sh *", "bash -c 'cd sub; ../deploy.sh a'", "deny"),
        ("./deploy.sh prod *", ".//deploy.sh $X", "deny"),
        ("PLACE *", "./deploy.sh a", "deny"),
        ("PLACE prod *", "./deploy.sh $X", "deny"),
        ("./sub/../deploy.sh *", "./deploy.sh a", "deny"),
        ("./deploy.sh *", "./sub/deploy.sh a", "allow"),
        ("./deploy.sh *", "cd sub && ./build.sh", "allow"),
        ("./deploy.sh prod *", "./deploy.sh test", "allow"),
    ] {
        let of = |text: &str| text.replace("PLACE", &path);
        let mut request = RunRequest::new("x").permission_mode(M::Bypass);
        request.deny = vec![format!("Bash({})", of(rule)).parse().unwrap()];
        let policy = Policy::new(&request, Path::new(&path).parent().unwrap()).unwrap();
        let mut ask = ask(Bash("x"));
        ask.command = Some(of(command));
        assert_eq!(policy.decide(&ask, &|path| policy.resolve(path)).name(), expected, "{rule} {command}");
    }
}
