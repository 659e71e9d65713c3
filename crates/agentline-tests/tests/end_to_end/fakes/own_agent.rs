//! An agent that a program implements itself and registers, without any change to agentline.

use agentline::{
    Agentline, HostEnv, Problem, RunRequest, Surface, Verdict,
    agents::{
        Agent, AgentDescription, AgentInfo, AgentRegistry, Dialogue, DialogueConfig, FileSystem, Launch,
        LaunchContext, Plan, PromptText, acp_dialogue,
    },
    supervisor::Supervisor,
};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Weak},
};

/// An agent whose name is known only at run time.
struct OwnAgent {
    name: String,
}

impl AgentDescription for OwnAgent {
    fn info(&self) -> AgentInfo<'_> {
        let mut info = AgentInfo::new(&self.name);
        info.program = env!("CARGO_BIN_EXE_fake-acp");
        info
    }
}

impl Agent for OwnAgent {
    fn check(&self, request: &RunRequest, _surface: Surface) -> Vec<Problem> {
        let named = request.model.iter().map(|_| Problem::new("model", "this agent has one model"));
        named.collect()
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        let mut launch = Launch::default();
        launch.program.clone_from(&context.program.path);
        launch.cwd.clone_from(&context.cwd);
        launch.env.clone_from(&context.env);
        launch.env.extend(plan.request.env.clone());
        launch.stdin = self.prompt_text(plan, &context.cwd, fs).map_err(|problem| vec![problem])?.text;
        launch.dialogue = DialogueConfig::new(plan.surface, context.program.version);
        Ok(launch)
    }

    fn prompt_text(&self, plan: &Plan, _cwd: &Path, _fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        Ok(PromptText::new(plan.request.prompt.clone()))
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        acp_dialogue(config)
    }
}

#[tokio::test]
async fn registered_agent_runs_and_is_dropped_with_its_registry() {
    let dir = tempfile::tempdir().unwrap();
    let (home, workspace) = (dir.path().join("home"), dir.path().join("ws"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&workspace).unwrap();
    let env = ["PATH", "TMPDIR"].map(|name| (name.to_owned(), std::env::var(name).unwrap_or_default()));
    let env = BTreeMap::from_iter(env.into_iter().filter(|(_, value)| !value.is_empty()));
    let agent: Arc<dyn Agent> = Arc::new(OwnAgent { name: format!("own-{}", std::process::id()) });
    let (name, watched): (String, Weak<dyn Agent>) = (agent.info().id.to_owned(), Arc::downgrade(&agent));
    let agentline = Agentline::new(HostEnv::new(env, home, workspace.clone()))
        .agents(AgentRegistry::default().with_agent(agent).unwrap())
        .supervisor(Supervisor::Path(env!("CARGO_BIN_EXE_supervised-host").into()));

    let request = RunRequest::new("hello").agent(&name).working_dir(workspace);
    let outcome = agentline.run(request.clone()).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{outcome:?}");
    assert_eq!(outcome.agent, name);
    assert!(!outcome.text.is_empty());
    let Err(refused) = agentline.run(request.model("other")).await else {
        panic!("the agent refuses a model")
    };
    assert!(refused.to_string().contains("this agent has one model"), "{refused}");

    drop(agentline);
    assert!(watched.upgrade().is_none(), "no reference to the agent remains");
}
