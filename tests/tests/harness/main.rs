//! Shows that the harness itself does what tests rely on: the control plane is
//! real, the stand-ins behave like what they stand for, nothing is left behind.

mod control_plane;
mod kubelet;
mod stand_ins;
mod workloads;

/// The status of an answer: 200 if there was no error, 0 if there was no answer.
fn code<T>(result: kube::Result<T>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}
