//! Programs and builtins whose arguments are analyzed, because they start others in their own way.

/// Programs that read a command from an argument, a script or standard input.
pub(super) const SHELLS: &[&str] =
    &["ash", "bash", "dash", "ksh", "ksh93", "lksh", "mksh", "oksh", "rbash", "sh", "yash", "zsh"];
/// Builtins that set variables named by their arguments.
pub(super) const ASSIGNING: &[&str] = &["read", "mapfile", "readarray", "getopts", "printf", "unset", "wait"];
/// Builtins that declare variables.
pub(super) const DECLARING: &[&str] = &["declare", "typeset", "local", "readonly", "export"];
/// Other programs and builtins whose arguments are analyzed.
const FOLLOWED: &[&str] = &[
    "find", "xargs", "trap", "alias", "unalias", "source", ".", "let", "test", "[", "set", "shopt", "cd",
    "pushd", "popd",
];

/// Returns whether the arguments of a program or builtin are analyzed.
pub(super) fn is_followed(name: &str) -> bool {
    [FOLLOWED, SHELLS, ASSIGNING, DECLARING].iter().any(|names| names.contains(&name))
}
