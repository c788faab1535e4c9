//! The services that the interface needs, and its settings.

use std::sync::Arc;
use std::time::Duration;

use api::{Authenticator, Namespace};
use types::{Clock, Network};

use crate::Instance;
use crate::metrics::Recorder;

pub struct AdminServices {
    pub instance: Arc<dyn Instance>,
    pub namespace: Arc<dyn Namespace>,
    pub authenticator: Arc<dyn Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Recorder,
}

#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Shown as the title of the page.
    pub site: String,
    /// The web page is served; `/ui` is 404 otherwise.
    pub has_page: bool,
    /// Networks from which metrics and the details of health are readable without a login, as from this host.
    pub metrics_networks: Vec<Network>,
    /// How long a login to the page lasts at most.
    pub session_validity_max: Duration,
}
