pub(crate) mod join;
pub(crate) mod state;
