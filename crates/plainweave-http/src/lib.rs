//! HTTP server library on fibers.
