//! Why a response is not sent to its end.

use std::io;

use thiserror::Error;

use crate::assembly::Broken;

#[derive(Debug, Error)]
pub(crate) enum SendError {
    /// The client's doing: nobody needs to know.
    #[error("client does not take the response: {0}")]
    Gone(#[from] io::Error),
    #[error("response ends early: {0}")]
    Broken(#[from] Broken),
    #[error("response ends early: {0}")]
    Stream(io::Error),
    #[error("response ends early: cannot send a file: {0}")]
    File(io::Error),
}
