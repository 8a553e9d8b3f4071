//! The data of a thread: keys, reducers, values, and the typed view of them.

mod reducer;
mod typed;
mod values;
mod with;

pub use reducer::{ReduceError, Reducer};
pub use typed::{KeySpec, Schema, State, StateFault, Writes, decode_key, decode_key_or_default, decode_value};
pub use values::{Change, StateView, Values};
pub use with::{Reduced, reduce_with};

pub(crate) use typed::{StateCodec, TypedCodec, UntypedCodec};
