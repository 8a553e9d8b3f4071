//! Traits through which the crates meet without knowing each other.
//!
//! The kernel performs no I/O: whatever it needs from outside comes in through
//! one of these, and `ops` decides which implementation stands behind it.

mod channel;
mod effects;
mod host;
mod stop;
mod system;

pub use channel::{Channel, ChannelName, DeliveryError, Directory, Notice, Occasion, Person, Receipt, Recipient};
pub use effects::{EffectError, Effects, FrameStep};
pub use host::Host;
pub use stop::StopSignal;
pub use system::{Clock, Ids, Timers};
