//! The rules of the core, as tables and properties. One `check` a file.

mod confirm;
mod intent;
mod lifecycle;
mod merge;
mod notice;
mod plan;
mod policy;
mod properties;
mod worlds;
