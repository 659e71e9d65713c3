//! Custom agents: any agent that speaks ACP and is configured by its command, with or without a profile.

mod profile;
mod sessions;

use super::adapter::{self, AdapterLaunch};
use crate::{
    Agent, AgentDescription, AgentInfo, AgentProfile, AgentSettings, Dialogue, DialogueConfig, Failure,
    FileSystem, Launch, LaunchContext, NativeDecision, NewFile, Notice, PermissionMode, Plan, Problem,
    PromptText, ReportedUsage, RequestedMode, RunRequest, SessionSource, Surface, SurfaceFeatures,
    ToolUseContext, Trust, Version, acp::Acp,
};
use profile::CustomProfile;
use sessions::ErrorStore;
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// What is not known about an agent from its configuration alone.
const UNKNOWN_WITH_MCP: &[&str] = &[
    "hosted_tools",
    "streams_text",
    "thinking",
    "tool_events",
    "asks_permission",
    "resumes",
    "attachments",
    "live_usage",
];

/// The same for an agent without MCP servers, which has no hosted tools.
const UNKNOWN: &[&str] = UNKNOWN_WITH_MCP.split_first().expect("it is not empty").1;

/// An agent that speaks ACP and is not built in: one of the configuration (`[agents.NAME]` with a `command`), one that
/// agentline has a profile of, or one that a program registers itself.
#[derive(Clone, Debug)]
pub struct CustomAgent {
    name: String,
    program: String,
    args: Vec<String>,
    settings: AgentSettings,
    sign_in_hint: String,
    aliases: &'static [&'static str],
    variables: &'static [&'static str],
    project_files: &'static [&'static str],
    quirks: &'static [&'static str],
    sessions: ErrorStore,
}

impl CustomAgent {
    /// Creates an agent with this name. The first word of the command is its program, the others are its arguments.
    pub fn new(name: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::create(name.into(), command, AgentSettings::default())
    }

    fn create(name: String, command: Vec<String>, mut settings: AgentSettings) -> Self {
        settings.command = Some(command.clone());
        (settings.args, settings.program) = (None, None);
        let mut words = command.into_iter();
        let program = words.next().unwrap_or_default();
        let profile = &settings.profile;
        let hint = || format!("sign in to `{name}` as its documentation describes");
        Self {
            program,
            args: words.collect(),
            sign_in_hint: profile.sign_in_hint.clone().unwrap_or_else(hint),
            aliases: interned(profile.aliases.as_deref()),
            variables: interned(profile.variables.as_deref()),
            project_files: interned(profile.project_files.as_deref()),
            quirks: interned(profile.quirks.as_deref()),
            sessions: ErrorStore::new(profile),
            name,
            settings,
        }
    }

    /// Returns the agent that these settings define, or `None` if they name no program.
    #[must_use]
    pub fn of(name: &str, settings: &AgentSettings) -> Option<Self> {
        let program = settings.program.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut command = settings.command.clone().unwrap_or_default();
        if command.is_empty() {
            command.push(program?);
        }
        command.extend(settings.args.clone().unwrap_or_default());
        Some(Self::create(name.to_owned(), command, settings.clone()))
    }

    /// Returns a problem for each option with MCP servers, if the agent does not use them.
    fn refused_servers(&self, request: &RunRequest) -> Vec<Problem> {
        let options = [
            ("mcp_servers", !request.mcp_servers.is_empty()),
            ("mcp_settings_path", request.mcp_settings_path.is_some()),
        ];
        let is_refused = self.settings.profile.mcp == Some(false);
        let set = options.into_iter().filter(|(_, is_set)| *is_set && is_refused);
        let message =
            format!("is not supported by {}: it accepts no MCP servers over HTTP", self.info().title);
        set.map(|(key, _)| Problem::new(key, message.clone()).hint("remove it, or use another agent"))
            .collect()
    }

    /// Returns a problem for each limit on tokens, if the agent does not report them before a run ends.
    fn unknown_tokens(&self, request: &RunRequest) -> Vec<Problem> {
        let profile = &self.settings.profile;
        let unknown = match (profile.session_usage.is_some(), profile.usage) {
            (false, Some(ReportedUsage::None)) => "reports no tokens",
            (false, Some(ReportedUsage::LastRequest)) => "reports only the tokens of its last request",
            _ => return Vec::new(),
        };
        let limits = &request.limits;
        let options = [
            ("max_tokens", limits.max_tokens.is_some()),
            ("max_output_tokens", limits.max_output_tokens.is_some()),
        ];
        let set = options.into_iter().filter(|(_, is_set)| *is_set);
        let message = format!("cannot be enforced: {} {unknown}", self.info().title);
        set.map(|(key, _)| Problem::new(key, message.clone()).hint("use `max_turns` or `max_tool_calls`"))
            .collect()
    }
}

impl AgentDescription for CustomAgent {
    fn info(&self) -> AgentInfo<'_> {
        let profile = &self.settings.profile;
        AgentInfo {
            aliases: self.aliases,
            title: profile.title.as_deref().unwrap_or(&self.name),
            program: &self.program,
            package: profile.package.as_deref().unwrap_or_default(),
            pinned: profile.version.as_deref().unwrap_or_default(),
            min_node: profile.min_node.unwrap_or_default(),
            home_page: profile.home_page.as_deref().unwrap_or_default(),
            sign_in_hint: &self.sign_in_hint,
            variables: self.variables,
            project_files: self.project_files,
            ..AgentInfo::new(&self.name)
        }
    }

    fn settings(&self) -> Option<AgentSettings> {
        Some(self.settings.clone())
    }

    fn quirks(&self, _surface: Surface, _version: Option<Version>) -> Vec<&'static str> {
        self.quirks.to_vec()
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        let all = SurfaceFeatures::of_protocol(surface);
        let (profile, mcp) = (&self.settings.profile, self.settings.profile.mcp != Some(false));
        SurfaceFeatures {
            mcp: all.mcp && mcp,
            hosted_tools: all.hosted_tools && mcp,
            schema: all.schema && mcp,
            live_usage: all.works && profile.session_usage.is_some(),
            ..all
        }
    }

    fn resolves_latest(&self) -> bool {
        // The format of its stored sessions is unknown; the agent lists them over ACP.
        true
    }

    fn unknown_abilities(&self) -> &'static [&'static str] {
        // ACP requires the others: it cancels by message, ends a turn with a reason, and passes on MCP servers.
        if self.settings.profile.mcp == Some(false) { UNKNOWN } else { UNKNOWN_WITH_MCP }
    }
}

impl Agent for CustomAgent {
    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, &self.info());
        problems.extend(adapter::unenforceable(request, surface, |_, _| {
            let reason = format!("agentline does not know what `{}` does without asking", self.name);
            let way_out = "remove the rule, or use a built-in agent";
            Some((reason, way_out.into()))
        }));
        problems.extend(self.refused_servers(request));
        problems.extend(self.unknown_tokens(request));
        if let Some(wrong) = self.settings.surface.filter(|s| *s != Surface::Acp) {
            problems.push(
                Problem::new(
                    format!("agents.{}.surface", self.name),
                    format!("`{wrong}` is not supported: custom agents support only the surface `acp`"),
                )
                .hint("write `surface = \"acp\"`, or remove it"),
            );
        }
        problems
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        _surface: Surface,
        _prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        match self.settings.profile.asks {
            Some(false) if request.permission_mode != PermissionMode::Bypass => {
                NativeDecision::Runs("never asks for permission")
            }
            _ => NativeDecision::Unknown,
        }
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        let profile = &self.settings.profile;
        let mode = plan.request.permission_mode;
        let mut own = AdapterLaunch::new(self.info());
        own.args.clone_from(&self.args);
        own.env.extend(path_with_program(context).map(|path| ("PATH".to_owned(), path)));
        let private = context.private.to_string_lossy();
        let in_private = |text: &String| match profile.files.is_empty() {
            true => text.clone(),
            false => text.replace("{private}", &private),
        };
        own.env.extend(self.settings.env.iter().map(|(name, value)| (name.clone(), in_private(value))));
        if let Some(served) = profile.mode(mode.name()) {
            own.args.extend(served.args.clone());
            own.env.extend(served.env.clone());
            // A run in a laxer mode than the requested one must not start.
            let must = mode != PermissionMode::Bypass;
            own.mode = served.mode.as_ref().map(|id| RequestedMode::new(id, must));
        }
        let never_asks = profile.asks == Some(false);
        own.only_when_asked = !never_asks && profile.mode(mode.name()).is_none();
        own.quiet = profile.quiet_period_ms.unwrap_or(own.quiet);
        let mut launch = adapter::launch(plan, context, fs, own)?;
        let files = profile.files.iter();
        launch
            .files
            .extend(files.map(|(name, text)| NewFile::new(context.private.join(name), text.as_str())));
        // A tape contains the profile, so that it replays without the configuration.
        launch.dialogue.profile =
            Some(Box::new(profile.clone())).filter(|profile| **profile != AgentProfile::default());
        if never_asks && mode != PermissionMode::Bypass {
            let (title, mode) = (self.info().title, mode.name());
            let text = format!(
                "{title} changes files and runs commands without asking: the mode `{mode}` only reports them"
            );
            launch.warnings.push(Notice::new("mode_when_asked", text));
        }
        Ok(launch)
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        if plan.request.trust == Trust::Full {
            return None;
        }
        let dirs = adapter::workspace_dirs(&context.cwd, &context.home);
        let mut files = dirs.flat_map(|dir| self.project_files.iter().map(move |file| dir.join(file)));
        files.find(|file| fs.exists(file)).map(|file| adapter::refuses_settings(self.info().title, &file))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, true, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        let own = || Box::new(self.settings.profile.clone());
        let config =
            DialogueConfig { profile: config.profile.clone().or_else(|| Some(own())), ..config.clone() };
        configured_dialogue(&config)
    }

    fn sessions(&self) -> &dyn SessionSource {
        &self.sessions
    }
}

/// Returns the search path with the program's own directory at its end, if it is not part of it. An adapter starts its
/// agent by name, and both may be installed in a directory that is not on the search path.
fn path_with_program(context: &LaunchContext) -> Option<String> {
    let dir = context.program.path.parent().filter(|dir| dir.is_absolute())?;
    let path = context.env.get("PATH")?;
    let mut dirs: Vec<&Path> = path.split(SEPARATOR).map(Path::new).collect();
    if dirs.contains(&dir) {
        return None;
    }
    dirs.push(dir);
    let dirs: Vec<&str> = dirs.into_iter().map(Path::to_str).collect::<Option<_>>()?;
    Some(dirs.join(SEPARATOR))
}

/// What separates the directories of a search path.
const SEPARATOR: &str = if cfg!(windows) { ";" } else { ":" };

/// Creates a dialogue with a configured agent, by the profile in its configuration.
pub(crate) fn configured_dialogue(config: &DialogueConfig) -> Box<dyn Dialogue> {
    let profile = CustomProfile::new(config.profile.as_deref().unwrap_or(&AgentProfile::default()));
    Box::new(Acp::new(config, Box::new(profile)))
}

/// The lists of texts in [`AgentInfo`] are static. Those of the configuration are few and are kept forever, once each.
static LISTS: Mutex<BTreeSet<&'static [&'static str]>> = Mutex::new(BTreeSet::new());

fn interned(list: Option<&[String]>) -> &'static [&'static str] {
    let list: Vec<&str> = list.unwrap_or_default().iter().map(String::as_str).collect();
    if list.is_empty() {
        return &[];
    }
    let mut known = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(list) = known.iter().copied().find(|known| **known == *list) {
        return list;
    }
    let texts = list.into_iter().map(|text| &*Box::leak(text.to_owned().into_boxed_str()));
    let list: &'static [&'static str] = Box::leak(texts.collect::<Vec<_>>().into_boxed_slice());
    known.insert(list);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProfileMode, Program, memory_fs::MemoryFs};

    fn agent(change: impl FnOnce(&mut AgentProfile)) -> CustomAgent {
        let mut settings = AgentSettings { command: Some(vec!["mine".into()]), ..AgentSettings::default() };
        change(&mut settings.profile);
        CustomAgent::of("mine", &settings).unwrap()
    }

    fn launch(agent: &CustomAgent, mode: PermissionMode) -> Launch {
        let plan = Plan::new(RunRequest::new("x").permission_mode(mode), Surface::Acp);
        let program = Program { path: "/bin/mine".into(), args: vec![], version: None };
        let context = LaunchContext::new(program, "/ws".into(), "/home/me".into(), "/p".into());
        agent.launch(&plan, &context, &MemoryFs::default()).unwrap()
    }

    #[test]
    fn permission_mode_is_served_by_the_mode_of_the_profile() {
        let agent = agent(|profile| {
            profile.modes.insert("default".into(), ProfileMode::named("ask"));
            let mut bypass = ProfileMode::named("yolo");
            (bypass.args, bypass.env) = (vec!["--fast".into()], [("MODE".into(), "auto".into())].into());
            profile.modes.insert("bypass".into(), bypass);
            profile.quiet_period_ms = Some(20);
        });
        let default = launch(&agent, PermissionMode::Default);
        assert_eq!(default.mode, Some(RequestedMode::new("ask", true)));
        assert_eq!((default.quiet, default.warnings.len()), (20, 0));
        let bypass = launch(&agent, PermissionMode::Bypass);
        assert_eq!(bypass.mode, Some(RequestedMode::new("yolo", false)));
        assert_eq!((&*bypass.args[0], &*bypass.env["MODE"]), ("--fast", "auto"));
        assert_eq!(launch(&agent, PermissionMode::Plan).warnings[0].code, "mode_when_asked");
    }

    #[test]
    fn files_of_the_profile_are_in_the_private_directory() {
        let mut settings = AgentSettings { command: Some(vec!["mine".into()]), ..AgentSettings::default() };
        settings.env.insert("MINE_SETTINGS".into(), "{private}/mine.json".into());
        settings.profile.files.insert("mine.json".into(), "{}".into());
        let launch = launch(&CustomAgent::of("mine", &settings).unwrap(), PermissionMode::Default);
        assert_eq!(launch.env["MINE_SETTINGS"], "/p/mine.json");
        assert_eq!(launch.files, [NewFile::new("/p/mine.json", "{}")]);
    }

    #[test]
    fn agent_that_never_asks_is_started_with_a_warning() {
        let agent = agent(|profile| profile.asks = Some(false));
        let warned =
            |mode| launch(&agent, mode).warnings.iter().any(|notice| notice.code == "mode_when_asked");
        assert!(warned(PermissionMode::Default) && warned(PermissionMode::AcceptEdits));
        assert!(!warned(PermissionMode::Bypass));
    }

    #[test]
    fn untrusted_workspace_with_the_agents_settings_is_refused() {
        let agent = agent(|profile| profile.project_files = Some(vec![".mine".into()]));
        let refused = |trust, fs: &MemoryFs| {
            let plan = Plan::new(RunRequest::new("x").trust(trust), Surface::Acp);
            let program = Program { path: "/bin/mine".into(), args: vec![], version: None };
            let context = LaunchContext::new(program, "/u/ws".into(), "/u".into(), "/p".into());
            agent.refuses_workspace(&plan, &context, fs).is_some()
        };
        let hostile = MemoryFs::default().plain("/u/ws/.mine/settings.json", "{}");
        assert!(refused(Trust::Run, &hostile) && !refused(Trust::Full, &hostile));
        let own = MemoryFs::default().plain("/u/.mine/settings.json", "{}");
        assert!(!refused(Trust::Run, &own), "the user's own settings are not those of the workspace");
    }

    #[test]
    fn directory_of_the_program_is_at_the_end_of_the_search_path() {
        let program = Program { path: "/cache/bin/mine".into(), args: vec![], version: None };
        let mut context = LaunchContext::new(program, "/ws".into(), "/home/me".into(), "/p".into());
        let mut path = |path: &str| {
            context.env.insert("PATH".into(), path.replace(':', SEPARATOR));
            path_with_program(&context).map(|path| path.replace(SEPARATOR, ":"))
        };
        assert_eq!(path("/bin:/usr/bin").as_deref(), Some("/bin:/usr/bin:/cache/bin"));
        assert_eq!(path("/cache/bin:/bin"), None);
    }

    #[test]
    fn lists_are_stored_once() {
        let list = ["a".to_owned(), "b".to_owned()];
        assert!(std::ptr::eq(interned(Some(&list)), interned(Some(&list))));
    }
}
