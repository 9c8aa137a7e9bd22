//! stub until the helper's work lands
use serde::{Serialize,Deserialize};
#[derive(Debug,Clone,PartialEq,Eq,Serialize,Deserialize,Default)] pub struct PolicySpec {}
#[derive(Debug,Clone,PartialEq,Eq,Serialize)] pub struct Policy {}
