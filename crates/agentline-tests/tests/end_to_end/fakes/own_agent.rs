//! An agent that a program implements itself and registers, without any change to agentline.

use agentline::{
    Agentline, Event, HostEnv, Pool, PoolOptions, Problem, RunRequest, Surface, Verdict,
    agents::{
        Agent, AgentDescription, AgentInfo, AgentRegistry, Dialogue, DialogueConfig, FileSystem, Launch,
        LaunchContext, Plan, PromptText, acp_dialogue,
    },
    supervisor::Supervisor,
};
use agentline_tests::{FakeStage, wait_in_runtime};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Weak},
};

/// An agent whose name is known only at run time.
struct OwnAgent {
    name: String,
    sessions_per_process: Option<u32>,
}

impl AgentDescription for OwnAgent {
    fn info(&self) -> AgentInfo<'_> {
        let mut info = AgentInfo::new(&self.name);
        info.program = env!("CARGO_BIN_EXE_fake-acp");
        info
    }

    fn sessions_per_process(&self, _surface: Surface) -> Option<u32> {
        self.sessions_per_process
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
    let name = format!("own-{}", std::process::id());
    let agent: Arc<dyn Agent> = Arc::new(OwnAgent { name, sessions_per_process: None });
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

/// The start of the next process does not compete with the agent while it prepares its first request.
#[tokio::test]
async fn used_process_is_replaced_with_the_first_output_or_at_the_end() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let agent = OwnAgent { name: "single".into(), sessions_per_process: Some(1) };
    let registry = AgentRegistry::default().with_agent(Arc::new(agent)).unwrap();
    let pool = Pool::new(stage.agentline().agents(registry), PoolOptions::default());
    let start = async |script: &str| pool.run(stage.request(script).agent("single")).await.unwrap();
    let is_prepared = || pool.status().processes.iter().any(|process| process.ready && process.active == 0);

    let mut run = start("sleep 500\nsay x\nhang").await;
    while !matches!(run.next().await.expect("a text").event, Event::Text { .. }) {}
    wait_in_runtime("the next process, while the run is active", is_prepared).await;
    let ages: Vec<u64> = pool.status().processes.iter().map(|process| process.age_ms).collect();
    let [used, next] = ages[..] else { panic!("{:?}", pool.status()) };
    assert!(used.abs_diff(next) >= 500, "the next process was started before the output: {ages:?}");
    run.cancel();
    assert_eq!(run.outcome().await.verdict, Verdict::Cancelled);

    let silent = start("hang").await;
    wait_in_runtime("the session of the run", || {
        pool.status().processes.iter().any(|process| process.active == 1 && process.sessions == 1)
    })
    .await;
    assert_eq!(pool.status().started, 2, "{:?}", pool.status());
    silent.cancel();
    assert_eq!(silent.outcome().await.verdict, Verdict::Cancelled);
    wait_in_runtime("the next process after a run without output", || pool.status().started == 3).await;
    pool.close().await;
    assert_eq!(stage.living(), [0_u32; 0]);
}
