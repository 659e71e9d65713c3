//! Serves the tools of a run over MCP, using rmcp. No other module uses that crate, because it changes often.

use crate::tools::{
    output::{ToolOutput, structured_for},
    registry::ToolRegistry,
};
use http_body_util::{Full, combinators::BoxBody};
use hyper::{Request, Response, body::Bytes};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde::Deserialize;
use serde_json::Value;
use std::{convert::Infallible, sync::Arc};

/// The maximum size of a request.
pub(super) const LONGEST_REQUEST: usize = 16 << 20;

/// The MCP server of one run.
pub(super) struct McpToolServer {
    registry: Arc<ToolRegistry>,
    service: StreamableHttpService<Speaker, NeverSessionManager>,
}

impl McpToolServer {
    pub(super) fn new(registry: Arc<ToolRegistry>) -> Self {
        // Without sessions and with plain JSON responses, there is no state to clean up.
        let config = StreamableHttpServerConfig::default()
            .with_cancellation_token(registry.closed.child_token())
            .with_max_request_body_bytes(LONGEST_REQUEST)
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(None)
            .enforce_origin_validation();
        let speaker = Speaker(Arc::clone(&registry));
        let service = StreamableHttpService::new(
            move || Ok(speaker.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        Self { registry, service }
    }

    /// Answers an authenticated request.
    pub(super) async fn answer(
        &self,
        request: Request<Full<Bytes>>,
        body: &Bytes,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        // rmcp drops notifications when there are no sessions, but a cancelled call must end.
        if let Ok(Cancelled { method, params: Some(params) }) = serde_json::from_slice(body)
            && method == "notifications/cancelled"
        {
            self.registry.in_flight.cancel(&params.request_id.to_string());
        }
        self.service.handle(request).await
    }
}

#[derive(Deserialize)]
struct Cancelled {
    method: String,
    params: Option<CancelledParams>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelledParams {
    #[serde(default)]
    request_id: Value,
}

/// The rmcp handler of the server.
#[derive(Clone)]
struct Speaker(Arc<ToolRegistry>);

impl ServerHandler for Speaker {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(self.0.name.clone(), env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.listed();
        let row = |tool: &Arc<super::Tool>| {
            Tool::new(tool.name().to_owned(), tool.description().to_owned(), tool.schema())
        };
        Ok(ListToolsResult::with_all_items(self.0.tools.iter().map(row).collect()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = context.id.clone().into_json_value().to_string();
        let args = params.arguments.unwrap_or_default();
        match self.0.call(request, &params.name, args, context.ct).await {
            Ok(output) => Ok(result(output).into()),
            Err(_) => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }
}

fn result(output: ToolOutput) -> CallToolResult {
    let structured = output.structured.filter(Value::is_object).or_else(|| structured_for(&output.text));
    let text = vec![ContentBlock::text(output.text)];
    let mut result =
        if output.is_error { CallToolResult::error(text) } else { CallToolResult::success(text) };
    result.structured_content = structured;
    result
}
