//! Why an operation of a group ended without a result.

use api::NamespaceError;

use crate::store::StoreError;

#[derive(Debug)]
pub enum OpError {
    /// The operation alone is refused.
    Refused(NamespaceError),
    /// The database failed: the whole group is rolled back.
    Failed(StoreError),
}

impl From<NamespaceError> for OpError {
    fn from(error: NamespaceError) -> OpError {
        OpError::Refused(error)
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        OpError::Failed(error)
    }
}

pub type OpResult<T> = Result<T, OpError>;
