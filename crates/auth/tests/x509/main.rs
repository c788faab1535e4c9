//! Certificate chains as clients of grids send them, right ones and each kind of wrong one.

mod chains;
mod directories;
mod forge;
mod proxies;
mod site;
mod vectors;
mod voms;
