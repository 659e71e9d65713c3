//! The scenarios, by subject.

mod answers;
mod control;
mod permissions;
mod service;
mod sessions;
mod tools;

use crate::scenario::{Group, Scenario, Tier};

/// Returns every scenario, in the order of the matrix.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let groups = [
        (Group::Answers, answers::scenarios()),
        (Group::Tools, tools::scenarios()),
        (Group::Permissions, permissions::scenarios()),
        (Group::Service, service::scenarios()),
        (Group::Control, control::scenarios()),
        (Group::Sessions, sessions::scenarios()),
    ];
    let in_group = |(group, scenarios): (Group, Vec<Scenario>)| {
        scenarios.into_iter().map(move |scenario| Scenario { group, ..scenario })
    };
    groups.into_iter().flat_map(in_group).collect()
}

/// Returns the scenarios up to a tier.
#[must_use]
pub fn up_to(tier: Tier) -> Vec<Scenario> {
    all().into_iter().filter(|scenario| scenario.tier <= tier).collect()
}

/// Returns a scenario by its name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exceptions;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_tiers_have_the_promised_sizes() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 30, "{}", all.len());
        assert_eq!(up_to(Tier::Basic).len(), 8);
        assert_eq!(up_to(Tier::Deep).len(), 12);
    }

    #[test]
    fn exceptions_name_scenarios_that_exist() {
        for exception in exceptions::all() {
            let unknown = exception.scenarios.iter().find(|name| find(name).is_none());
            assert_eq!(unknown, None, "{exception:?}");
            assert!(!exception.aspects.is_empty() && !exception.reason.is_empty(), "{exception:?}");
        }
    }
}
