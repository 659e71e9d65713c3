//! Builds the launch of OpenCode: arguments, variables and how its API is reached.

use super::{INFO, options, policy, settings};
use crate::{
    FileSystem, Launch, LaunchContext, LoopbackApi, PermissionMode, Plan, Problem, RequestedMode, RunRequest,
    Surface, SystemMode, Trust,
    agents::adapter::{self, AdapterLaunch},
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The arguments for ACP. Failed requests to the model's service are only in the log.
const ACP_ARGUMENTS: &[&str] = &["acp", "--print-logs", "--log-level", "ERROR"];
/// The start of the line with which `opencode serve` prints its address.
const ANNOUNCEMENT: &str = "opencode server listening on ";
/// The user name for the password of the API.
const API_USER: &str = "opencode";
/// The variable for that password.
const API_PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";

/// Selects the surface for a request that names none.
pub(super) fn choose(request: &RunRequest) -> Surface {
    // `serve` reports more than ACP.
    if only_acp(request).next().is_none() { Surface::Serve } else { Surface::Acp }
}

/// Checks a request, before anything is looked up.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let mut problems = adapter::check(request, &INFO);
    // The settings of a process have its system prompt, and sessions are listed by date.
    problems.retain(|problem| !matches!(&*problem.key, "system_mode" | "resume"));
    problems.extend(policy::permissions(request).err().unwrap_or_default());
    problems.extend(adapter::unenforceable(request, surface, |_, rule| policy::unenforced(rule)));
    problems.extend(options::check(request, surface));
    if surface == Surface::Serve {
        problems.extend(only_acp(request).map(|key| {
            Problem::new(key, "is not supported on the surface `serve`").hint("remove it, or use `acp`")
        }));
        return problems;
    }
    problems
}

/// Builds the launch of a checked plan.
pub(super) fn launch(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let mut own = AdapterLaunch::new(INFO);
    let serves = plan.surface == Surface::Serve;
    let words: &[&str] =
        if serves { &["serve", "--hostname", "127.0.0.1", "--port", "0"] } else { ACP_ARGUMENTS };
    own.args = words.iter().map(|word| (*word).to_owned()).collect();
    own.set("OPENCODE_DISABLE_AUTOUPDATE", "1");
    if serves {
        // Without this name, OpenCode offers its tool for questions, and a run has no user to answer them.
        own.set("OPENCODE_CLIENT", "agentline");
        own.quiet = 0;
        own.takes_folders = true;
    }
    let appended = request.system_prompt.as_ref().filter(|_| request.system_mode == SystemMode::Append);
    own.takes_system = serves || request.system_mode == SystemMode::Replace;
    if serves {
        let mut options = Map::new();
        options.extend(appended.map(|system| ("system".to_owned(), json!(system))));
        options.extend(options::effort(request).map(|effort| ("variant".to_owned(), json!(effort))));
        own.meta = Some(Value::from(options)).filter(|options| options != &json!({}));
    }
    let mut permissions = policy::permissions(request)?;
    if !request.include_directories.is_empty() && permissions["*"] != json!("allow") {
        permissions["external_directory"] = included_directories(request, &context.cwd);
    }
    own.set("OPENCODE_PERMISSION", permissions.to_string());
    if request.trust != Trust::Full {
        own.set("OPENCODE_DISABLE_PROJECT_CONFIG", "1");
    }
    let plans = request.permission_mode == PermissionMode::Plan;
    own.mode = Some(RequestedMode::new(if plans { "plan" } else { "build" }, plans));
    let mut launch = adapter::launch(plan, context, fs, own)?;
    let content = launch.env.get(settings::CONTENT).map(String::as_str);
    let content = settings::content(plan, content).map_err(|problem| vec![problem])?;
    launch.env.insert(settings::CONTENT.to_owned(), content);
    if serves {
        launch.env.insert("OPENCODE_SERVER_USERNAME".into(), API_USER.into());
        launch.api = Some(LoopbackApi::new(ANNOUNCEMENT, "/global/event", API_USER, API_PASSWORD));
    }
    Ok(launch)
}

/// Returns the options of a request that only ACP has: arguments of the caller, a sign-in by message, and files that the
/// agent requests from the host.
fn only_acp(request: &RunRequest) -> impl Iterator<Item = &'static str> {
    let options = [
        ("agent_args", request.agent_args.is_some()),
        ("authenticate", request.authenticate.is_some()),
        ("allow_file_reads", request.allow_file_reads),
        ("allow_file_writes", request.allow_file_writes),
    ];
    options.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
}

/// Returns OpenCode's permission for paths outside the workspace: it uses the included directories without asking. Edits
/// have a permission of their own.
fn included_directories(request: &RunRequest, cwd: &Path) -> Value {
    let pattern = |dir: &PathBuf| format!("{}/*", cwd.join(dir).display());
    let included = request.include_directories.iter().map(|dir| (pattern(dir), json!("allow")));
    // The last pattern that matches decides, and this one is the first in the order of the map.
    std::iter::once(("*".to_owned(), json!("ask"))).chain(included).collect::<Map<_, _>>().into()
}
