//! Random requests to the embedded API and to a real one, which must answer the same.
//!
//! [`kinds`] says what objects look like, [`generate`] makes cases of them (an object and requests that change it),
//! [`case`] is what a case is and how it is written as commands, and [`answer`] what of an answer is compared, but for [`rules`]. The test of this
//! crate sends each case to both servers; what differs is shrunk to the smallest case that differs.

pub mod answer;
pub mod case;
pub mod generate;
pub mod kinds;
pub mod rules;
