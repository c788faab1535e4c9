//! `log-levels`: for administrators, to read and to set.

use api::Caller;
use http_server::{Request, Response};
use serde_json::json;

use super::ok;
use crate::caller::administrator;
use crate::instance::LogLevels;
use crate::refusal::Refusal;
use crate::service::Admin;

const BODY_BYTES_MAX: u64 = 16 << 10;

impl Admin {
    pub(super) fn log_levels(&self, caller: &Caller) -> Result<Response, Refusal> {
        administrator(caller)?;
        Ok(ok(&json!(self.services.instance.log_levels())))
    }

    /// Takes the place of all levels; answers with those in force.
    pub(super) async fn set_log_levels(
        &self,
        caller: &Caller,
        mut request: Request,
    ) -> Result<Response, Refusal> {
        let caller = administrator(caller)?;
        let body = request.body.collect(BODY_BYTES_MAX).await?;
        let levels: LogLevels = http_wire::json::object(&body)
            .map_err(|error| Refusal::bad_request(format!("these are no log levels: {error}")))?;
        self.services.instance.set_log_levels(&levels).map_err(Refusal::bad_request)?;
        tracing::info!(caller = %caller.name, client = %request.peer.address, ?levels, "log levels were set");
        Ok(ok(&json!(self.services.instance.log_levels())))
    }
}
