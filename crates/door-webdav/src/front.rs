//! The door at the head: knows names, callers, locks and the conflict table, and decides who moves the bytes.

use std::sync::Arc;
use std::time::Duration;

use api::{Authenticator, Credential, Namespace, Origin, Properties, TicketKeys};
use async_trait::async_trait;
use file_state::{Holder, Owner, Share};
use files::{Files, Judge, OpenFile, RegisterError, UploadBounds, UploadsAtPools, UploadsInParts};
use http::StatusCode;
use http_server::{Request, RequestBody, Response, Service};
use http_wire::credential::{self, CredentialError, Given};
use http_wire::target;
use http_wire::target::Target;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::Instrument;
use types::{Attributes, ChecksumKind, Clock, FileId, Name, Random};

use crate::call::{Call, payer, with_host};
use crate::locks::{LockOwner, Locks, Open};
use crate::refusal::Refusal;
use crate::tasks::Tasks;
use crate::tpc::{TransferConfig, Transfers};

/// As messages and statistics name the door, and as a pool manager knows the addresses of data faces for it.
pub const NAME: &str = "http";

/// Requests that change names or properties. They are few as long as their clients wait, and go on when those are gone.
const CHANGES_MAX: usize = 4_096;

pub struct FrontServices {
    pub namespace: Arc<dyn Namespace>,
    pub properties: Arc<dyn Properties>,
    pub files: Arc<Files>,
    pub authenticator: Arc<dyn Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub ticket_keys: TicketKeys,
    /// For third-party copies.
    pub client: http_client::Client,
}

#[derive(Clone, Debug)]
pub struct FrontConfig {
    /// For the storage record and the User-Agent of copies.
    pub site: String,
    pub redirect: Redirect,
    pub is_tls: bool,
    /// `host:port` by which clients know this instance, for COPY and MOVE; what the Host header says always counts.
    pub authorities: Vec<String>,
    /// Names in the root directory that are not files' here: other parts of the server answer them.
    pub reserved: &'static [&'static str],
    /// Kept for every upload; others are computed when somebody asks.
    pub checksums: Vec<ChecksumKind>,
    /// Where a browser that asks for a directory is sent, with the path appended. `None`: it gets the plain index.
    pub page: Option<String>,
    pub locks_max: usize,
    pub uploads_max: usize,
    pub uploads_per_caller_max: usize,
    pub copies: TransferConfig,
    pub lock_timeout_max: Duration,
    /// How long a change waits for layouts of NFS clients to come back before the client is told to come again.
    pub recall_patience: Duration,
}

/// Whether clients are sent to the pool that has the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    Never,
    /// Where the pool is in another process.
    Auto,
    /// Where the client can follow: every GET but those of clients known not to, a PUT that waits with its body.
    Always,
}

pub struct Front {
    pub(crate) services: FrontServices,
    pub(crate) config: FrontConfig,
    /// The holder of requests in the conflict table: a request is of no client that could be told apart.
    pub(crate) requests: Holder,
    /// The holder of locks, apart from that of requests, since locks outlive requests.
    lock_holder: Holder,
    /// Leaf lock.
    pub(crate) locks: Arc<Mutex<Locks>>,
    /// A change that locks had to wait for is done.
    pub(crate) changes_ended: Arc<Notify>,
    /// Uploads that were sent to a pool.
    pub(crate) at_pools: UploadsAtPools<LockOwner>,
    /// Uploads in several requests.
    pub(crate) in_parts: UploadsInParts,
    pub(crate) changing: Tasks,
    pub(crate) transfers: Transfers,
}

impl Front {
    /// Judges access to files, by their ACL or mode.
    pub(crate) fn judge(&self) -> Judge<'_> {
        self.services.files.judge()
    }

    /// Registers the door with the files: that is what can fail.
    pub fn new(services: FrontServices, config: FrontConfig) -> Result<Arc<Front>, RegisterError> {
        let door = services.files.register(NAME)?;
        let FrontConfig { uploads_max: all_max, uploads_per_caller_max: per_caller_max, .. } = config;
        let bounds = UploadBounds { all_max, per_caller_max };
        Ok(Arc::new(Front {
            requests: Holder::of(door, 1),
            lock_holder: Holder::of(door, 2),
            locks: Arc::new(Mutex::new(Locks::new(config.locks_max))),
            changes_ended: Arc::default(),
            at_pools: UploadsAtPools::new(bounds, Arc::clone(&services.clock)),
            in_parts: UploadsInParts::new(bounds, Arc::clone(&services.clock)),
            changing: Tasks::new(CHANGES_MAX),
            transfers: Transfers::new(services.client.clone(), config.copies.clone()),
            services,
            config,
        }))
    }

    /// Ends locks and uploads that nobody came back for; to be called every second or so.
    pub fn tick(&self) {
        let now = self.services.clock.monotonic();
        let over = self.locks.lock().expire(now);
        over.into_iter().for_each(|lock| self.release_lock(&lock));
        self.at_pools.give_up_idle();
        self.in_parts.give_up_idle();
    }

    pub(crate) fn now_s(&self) -> u64 {
        u64::try_from(self.services.clock.now().seconds).unwrap_or(0)
    }

    /// Holds a file open while the answer lives, with its attributes as they are then.
    pub(crate) async fn hold(&self, file: FileId, share: Share) -> Result<(OpenFile, Attributes), Refusal> {
        Ok(self.services.files.open(file, self.requests, share).await?)
    }

    pub(crate) fn lock_owner(&self) -> Owner {
        self.services.files.owner(self.lock_holder)
    }

    pub(crate) fn release_lock(&self, lock: &crate::locks::Lock) {
        self.release_opens(&lock.opens);
    }

    pub(crate) fn release_opens(&self, opens: &[Open]) {
        let mut table = self.services.files.table();
        for (file, number) in opens {
            table.close(*file, Owner { holder: self.lock_holder, number: *number });
        }
    }

    async fn call(&self, request: Request) -> Result<(Call, RequestBody), Refusal> {
        let Request { method, uri, headers, peer, body, .. } = request;
        let target = Target::of_uri(&uri).map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let origin = Origin { address: peer.address.ip(), is_encrypted: peer.tls.is_some() };
        self.refuse_reserved(&target.path)?;
        let given = credential::given(&method, &headers, &target.query).map_err(not_given)?;
        let certificates = peer.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
        let credential = match &given {
            Given::Bearer(token) => Credential::Bearer(token),
            Given::Password { user, password } => Credential::Password { user, password },
            Given::Nothing if !certificates.is_empty() => Credential::Certificates(certificates),
            Given::Nothing => Credential::None,
        };
        let caller = match self.services.authenticator.authenticate(credential, &origin).await {
            Ok(caller) => caller,
            Err(api::AuthError::Refused(message)) => return Err(crate::call::unauthorized(message)),
            Err(error) => return Err(error.into()),
        };
        let call = Call {
            caller,
            origin,
            method,
            headers: with_host(headers, &uri),
            path: target.path,
            is_directory_form: target.trailing_slash,
            token_in_query: target.query.first("authz").map(str::to_owned),
            peer,
        };
        Ok((call, body))
    }

    /// A name that is written so that it does not look like the server's own is that all the same: no file may be found by
    /// the second spelling of a name that the first one gives to the server.
    pub(crate) fn refuse_reserved(&self, path: &[Name]) -> Result<(), Refusal> {
        let is_first = |name: &&str| path.first().is_some_and(|first| first.as_bytes() == name.as_bytes());
        match self.config.reserved.iter().find(|name| is_first(name)) {
            Some(name) => Err(Refusal::forbidden(format!("/{name} is the server's own"))),
            None => Ok(()),
        }
    }

    async fn handle(self: &Arc<Self>, call: &Arc<Call>, body: RequestBody) -> Result<Response, Refusal> {
        // Of a COPY from elsewhere the header would be of its own head.
        if matches!(call.method.as_str(), "PUT" | "POST" | "PROPFIND" | "PROPPATCH" | "LOCK") {
            call.refuse_encoded_body()?;
        }
        match call.method.as_str() {
            "OPTIONS" => Ok(crate::service::options()),
            "GET" | "HEAD" => self.get(call).await,
            "PUT" => self.put(call, body).await,
            "POST" => self.post(call, body).await,
            "PROPFIND" => self.find_properties(call, body).await,
            "COPY" => self.copy(call).await,
            "DELETE" | "MKCOL" | "MOVE" | "PROPPATCH" => self.change(call, body).await,
            "LOCK" => self.lock(call, body).await,
            "UNLOCK" => self.unlock(call).await,
            _ => Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                format!("{} is not a method here", call.method),
            )),
        }
    }

    /// Runs a change of names or properties as a task of its own. The body is read before: its client may be slow.
    async fn change(self: &Arc<Self>, call: &Arc<Call>, body: RequestBody) -> Result<Response, Refusal> {
        let (front, call) = (Arc::clone(self), Arc::clone(call));
        match call.method.as_str() {
            "DELETE" => self.changing.run(async move { front.delete(&call).await }).await,
            "MKCOL" => {
                crate::collection::refuse_body(body).await?;
                self.changing.run(async move { front.make_collection(&call).await }).await
            }
            "PROPPATCH" => {
                let patch = crate::proppatch::patch_in(body).await?;
                self.changing.run(async move { front.patch_properties(&call, patch).await }).await
            }
            _ => self.changing.run(async move { front.relocate(&call).await }).await,
        }
    }
}

fn not_given(error: CredentialError) -> Refusal {
    match error {
        CredentialError::UnknownScheme => crate::call::unauthorized(error.to_string()),
        CredentialError::Repeated | CredentialError::Malformed | CredentialError::TooLong => {
            Refusal::bad_request(error.to_string())
        }
    }
}

/// `Arc<Front>` as a service: handlers keep the front alive beyond the request where a body is streamed.
pub struct FrontService(pub Arc<Front>);

#[async_trait]
impl Service for FrontService {
    async fn serve(&self, request: Request) -> Response {
        // The server as a whole (RFC 9110 §9.3.7); any other method is refused for it before it comes here.
        if request.uri.path() == "*" {
            return crate::service::options();
        }
        let (call, body) = match self.0.call(request).await {
            Ok((call, body)) => (Arc::new(call), body),
            Err(refusal) => return refusal.into_response(),
        };
        let span =
            tracing::debug_span!("request", door = NAME, client = %call.peer.address, method = %call.method);
        let (mut response, reason) = match self.0.handle(&call, body).instrument(span).await {
            Ok(response) => (response, None),
            Err(refusal) => {
                let refusal = call.reconsider(refusal);
                let reason = refusal.message.clone();
                (refusal.into_response(), Some(reason))
            }
        };
        response.payer = payer(&call.caller);
        tracing::debug!(
            client = %call.peer.address,
            caller = %call.caller.name,
            method = %call.method,
            path = target::encode_path(&call.path, false),
            status = response.status.as_u16(),
            reason,
            "request"
        );
        response
    }
}
