//! `habitat-tui mcp`: serves commands to agents over the Model Context Protocol, on standard input and output.
//!
//! A call of a tool runs this program once more, so that a call can be cancelled, and one that fails or crashes leaves
//! the server alone. Nothing here uses the network.

mod answers;
mod tools;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use answers::Answers;

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest, ConstString,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, GetMeta, Implementation, JsonRpcMessage,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::error::CliError;
use tools::Call;

/// Most calls that run at once; others wait.
const CALLS: usize = 4;

/// Serves until standard input ends.
pub(super) fn run() -> Result<u8, CliError> {
    let program = std::env::current_exe().map_err(CliError::other)?;
    let server = Server { program, tools: tools::all().into(), running: Arc::new(Semaphore::new(CALLS)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    runtime.block_on(async {
        // A client that leaves before it says anything is not an error.
        let (input, output) = rmcp::transport::stdio();
        let lines = AsyncRwTransport::new_server(input, Answers::to(output));
        if let Ok(service) = server.serve(Opening { lines, is_open: false }).await {
            service.waiting().await.map_err(CliError::other)?;
        }
        Ok(0)
    })
}

/// Skips notifications and answers before the session is open, which would otherwise end the server.
struct Opening<T> {
    lines: T,
    is_open: bool,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Opening<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.lines.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.lines.receive().await?;
            let is_request = matches!(message, JsonRpcMessage::Request(_));
            self.is_open |= matches!(&message, JsonRpcMessage::Request(one) if opens(&one.request));
            if is_request || self.is_open {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.lines.close().await
    }
}

/// Whether a request opens the session: `initialize`, or since 2026 any request with the facts that `initialize` has.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) => false,
        other => other.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty(),
    }
}

struct Server {
    program: PathBuf,
    tools: Arc<[Tool]>,
    running: Arc<Semaphore>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("habitat-tui", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(tools::INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = Call::parse(&request.name, arguments).map_err(|why| ErrorData::invalid_params(why, None))?;
        tokio::select! {
            result = self.answer(&call) => result.map(Into::into),
            () = context.ct.cancelled() => Err(failed("cancelled")),
        }
    }

    /// Refuses other requests. A call whose parameters cannot be read is one of them.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let is_call = request.method == CallToolRequestMethod::VALUE;
        let params = request.params.unwrap_or_else(|| Value::Object(Map::new()));
        Err(match serde_json::from_value::<CallToolRequestParams>(params) {
            Err(why) if is_call => ErrorData::invalid_params(why.to_string(), None),
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }
}

impl Server {
    /// Runs the command of a call. Dropped before it ends, it ends the command.
    async fn answer(&self, call: &Call) -> Result<CallToolResult, ErrorData> {
        let _permit = self.running.acquire().await.map_err(failed)?;
        let output = Command::new(&self.program)
            .args(&call.words)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| failed(format_args!("{}: {error}", self.program.display())))?;
        let said = call.said(String::from_utf8_lossy(&output.stderr).trim());
        // "No plan" has exit code 1, and its reasons in the answer.
        let answer = match output.status.code() {
            Some(0 | 1) => serde_json::from_slice(&output.stdout).ok(),
            _ => None,
        };
        let Some(answer) = answer else {
            let why = if said.is_empty() { output.status.to_string() } else { said };
            return Ok(CallToolResult::error(vec![ContentBlock::text(why)]));
        };
        // Warnings of the command come after its answer.
        let mut result = CallToolResult::structured(call.answer(answer));
        result.content.extend((!said.is_empty()).then(|| ContentBlock::text(said)));
        Ok(result)
    }
}

fn failed(why: impl std::fmt::Display) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, why.to_string(), None)
}
