//! Token counts of a message in each view.

use crate::Tokens;
use serde::Serialize;

/// Token counts as agentline defines them: input includes cached tokens, output excludes reasoning. Unknown values are
/// omitted.
#[derive(Serialize)]
pub(crate) struct UnifiedCounts {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_tokens: Option<u64>,
}

impl UnifiedCounts {
    pub(crate) fn of(tokens: &Tokens) -> Self {
        Self {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            total_tokens: tokens.sum(),
            cache_read_input_tokens: tokens.cached,
            cache_creation_input_tokens: tokens.cache_write,
            reasoning_tokens: tokens.thoughts,
            tool_tokens: tokens.tool,
        }
    }
}

/// Token counts as Claude defines them: input excludes tokens read from or written to the cache, output includes
/// reasoning.
///
/// Every field that Claude's types require is present; unknown values are 0.
#[derive(Serialize)]
pub(crate) struct ClaudeCounts {
    pub(crate) input_tokens: u64,
    pub(crate) cache_creation_input_tokens: u64,
    pub(crate) cache_read_input_tokens: u64,
    pub(crate) output_tokens: u64,
    output_tokens_details: ThinkingTokens,
    server_tool_use: ServerTools,
    service_tier: &'static str,
    cache_creation: CacheCreation,
    inference_geo: &'static str,
    iterations: [u64; 0],
    speed: &'static str,
    fallback_credit: Option<u64>,
}

#[derive(Serialize)]
struct ThinkingTokens {
    thinking_tokens: u64,
}

#[derive(Serialize)]
struct ServerTools {
    web_search_requests: u64,
    web_fetch_requests: u64,
}

#[derive(Serialize)]
struct CacheCreation {
    ephemeral_1h_input_tokens: u64,
    ephemeral_5m_input_tokens: u64,
}

impl ClaudeCounts {
    pub(crate) fn of(tokens: &Tokens) -> Self {
        let (read, written) = (tokens.cached.unwrap_or(0), tokens.cache_write.unwrap_or(0));
        let long = tokens.cache_write_long.unwrap_or(0);
        Self {
            input_tokens: tokens.input.unwrap_or(0).saturating_sub(read.saturating_add(written)),
            cache_creation_input_tokens: written,
            cache_read_input_tokens: read,
            output_tokens: tokens.produced(),
            output_tokens_details: ThinkingTokens { thinking_tokens: tokens.thoughts.unwrap_or(0) },
            server_tool_use: ServerTools { web_search_requests: 0, web_fetch_requests: 0 },
            service_tier: "standard",
            cache_creation: CacheCreation {
                ephemeral_1h_input_tokens: long,
                ephemeral_5m_input_tokens: written.saturating_sub(long),
            },
            inference_geo: "",
            iterations: [],
            speed: "standard",
            fallback_credit: None,
        }
    }
}
