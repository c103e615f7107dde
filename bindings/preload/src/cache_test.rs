#![forbid(unsafe_code)]
use super::*;
