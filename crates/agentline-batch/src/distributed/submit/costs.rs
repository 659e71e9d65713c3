//! What runs may cost, so that the cost limit of an experiment holds across workers.

use crate::check::Condition;
use crate::distributed::DistributedError;
use crate::distributed::spec::CostLimit;
use crate::execute::requests::RequestTable;
use crate::suite::{Suite, TestCase};
use agentline::config::Settings;
use agentline::prices::{Price, PriceTable};
use agentline::{Agentline, Problem, Problems, RunRequest};
use serde_json::{Map, Value};

/// The largest prompt of a request in tokens: no current model accepts more.
const LARGEST_PROMPT: f64 = 1_048_576.0;

/// The longest answer of a request in tokens: no current model writes more.
const LONGEST_ANSWER: f64 = 131_072.0;

/// What runs may cost.
#[derive(Debug)]
pub(super) struct Costs {
    limit: Option<CostLimit>,
    prices: PriceTable,
}

impl Costs {
    /// Looks at the limits of a suite and its runs.
    ///
    /// # Errors
    /// Fails if the limit must be strict and the cost of a run is not limited.
    pub(super) fn new(
        agentline: &Agentline,
        suite: &Suite,
        requests: &RequestTable,
        is_strict: bool,
    ) -> Result<Self, DistributedError> {
        let host_env = agentline.host_env();
        let settings =
            Settings::find(&host_env.cwd, None, Some(&host_env.home), std::env::vars_os(), Vec::new());
        let prices = settings.build()?.prices();
        let limit = suite.limits.cost_usd.map(|usd| CostLimit { usd, is_strict });
        let costs = Self { limit, prices };
        if is_strict {
            costs.check_strict(suite, requests)?;
        }
        Ok(costs)
    }

    pub(super) fn limit(&self) -> Option<CostLimit> {
        self.limit
    }

    /// Returns what is reserved for the run of a variant and its judges, in US dollars; `None` if the limits of the run do
    /// not tell.
    pub(super) fn reserve_for(
        &self,
        case: &TestCase,
        variant: usize,
        requests: &RequestTable,
    ) -> Option<f64> {
        let of = |settings| requests.get(settings).and_then(|(_, request)| self.reserve(request));
        let judges: f64 = judges(case).filter_map(of).sum();
        Some(of(&case.settings[variant])? + judges)
    }

    /// Returns what is reserved for a run, in US dollars; `None` if its limits do not tell.
    fn reserve(&self, request: &RunRequest) -> Option<f64> {
        let price = request.model.as_deref().and_then(|model| self.prices.of(model));
        let is_strict = self.limit.is_some_and(|limit| limit.is_strict);
        if let Some(most) = request.limits.max_cost {
            // The limit acts after the turn that crosses it.
            let last = if is_strict { price.map_or(0.0, largest_request) } else { 0.0 };
            return Some(most + last);
        }
        let tokens = request.limits.max_tokens?;
        let price = price?;
        #[expect(clippy::cast_precision_loss, reason = "token counts are small")]
        let tokens = tokens as f64;
        Some(tokens * highest(price).0.max(highest(price).1) / 1e6)
    }

    fn check_strict(&self, suite: &Suite, requests: &RequestTable) -> Result<(), DistributedError> {
        let mut problems = Vec::new();
        if self.limit.is_none() {
            let problem = Problem::new("--strict-budget", "the suite has no cost limit");
            problems.push(problem.hint("add `limits: {cost: …}` to the suite"));
        }
        for case in &suite.cases {
            let mut all = case.settings.iter().map(AsRef::as_ref).chain(judges(case));
            let unknown = all.find_map(|settings| self.unlimited(&requests.get(settings)?.1));
            let most =
                (0..case.settings.len()).filter_map(|variant| self.reserve_for(case, variant, requests));
            let problem = unknown.or_else(|| self.too_expensive(most.fold(0.0, f64::max)));
            let is_new = |problem: &Problem| {
                !problems
                    .iter()
                    .any(|known: &Problem| (&known.key, &known.message) == (&problem.key, &problem.message))
            };
            if let Some(problem) = problem.filter(is_new) {
                problems.push(problem.source(case.source.clone()));
            }
        }
        Ok(Problems(problems).into_result()?)
    }

    /// Returns why it is unknown what a run may cost; `None` if it is known.
    fn unlimited(&self, request: &RunRequest) -> Option<Problem> {
        let model = request.model.as_deref().unwrap_or("(the agent's default)");
        if request.limits.max_cost.is_none() {
            let problem = Problem::new("max_cost", "is needed for every run with --strict-budget");
            return Some(problem.hint("add `max_cost` to `defaults`"));
        }
        let message = format!("no price is known for the model `{model}`, which --strict-budget needs");
        let problem = || Problem::new("model", message);
        self.prices
            .of(model)
            .is_none()
            .then(|| problem().hint("name a model with a price: `agentline prices` lists them"))
    }

    /// Returns why a run with this reservation could never begin; `None` if it can.
    fn too_expensive(&self, reserve: f64) -> Option<Problem> {
        let limit = self.limit?.usd;
        let message = format!(
            "a run may cost ${reserve:.2} with its last request and its judges, more than the cost limit of ${limit:.2}"
        );
        let problem = || Problem::new("limits.cost", message);
        (reserve > limit).then(|| problem().hint("raise it, lower `max_cost`, or choose a cheaper model"))
    }
}

/// Returns the settings of the judges of a case.
fn judges(case: &TestCase) -> impl Iterator<Item = &Map<String, Value>> {
    case.checks.iter().filter_map(|check| match &check.condition {
        Condition::Judge(judge) => Some(&judge.settings),
        _ => None,
    })
}

/// Returns the highest prices of prompt and answer tokens, per million.
fn highest(price: Price) -> (f64, f64) {
    let mut input =
        price.input.max(price.cache_write.unwrap_or(0.0)).max(price.cache_write_long.unwrap_or(0.0));
    let mut output = price.output;
    if let Some(long) = price.long {
        let written = long.cache_write.unwrap_or(0.0).max(long.cache_write_long.unwrap_or(0.0));
        input = input.max(long.input).max(written);
        output = output.max(long.output);
    }
    (input, output)
}

/// Returns what a request at the limits of all models costs at most.
fn largest_request(price: Price) -> f64 {
    let (input, output) = highest(price);
    (LARGEST_PROMPT * input + LONGEST_ANSWER * output) / 1e6
}
