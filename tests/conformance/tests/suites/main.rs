//! What is asked of the embedded API and of real ones: requests as they are sent, and as kubectl sends them.

mod kubectl;
mod requests;
