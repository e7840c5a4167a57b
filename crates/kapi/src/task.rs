//! Work beside other tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does what takes its time while other tasks go on.
pub(crate) fn elsewhere<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|handle| handle.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
