//! Why the body of a request does not go on.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum BodyError {
    #[error("client went away in the middle of the body")]
    Gone,
    #[error("body did not come in time")]
    Slow,
    #[error("body is not well-formed: {0}")]
    Malformed(&'static str),
    #[error("body is longer than {0} bytes")]
    TooLong(u64),
    #[error("the server has no memory for this body now; try again")]
    Busy,
}
