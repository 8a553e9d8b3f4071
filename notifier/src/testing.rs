//! What the tests of several modules need.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::ids::{DeliveryId, InterruptId, ThreadId};
use countersign_kernel::ports::{ChannelName, Clock, Notice, Occasion, Recipient};
use countersign_kernel::principal::{Principal, role};
use countersign_kernel::question::approval;
use countersign_kernel::time::Timestamp;

use crate::link::Links;
use crate::signer::LinkKeys;

/// 15 January 2027, 08:00:00 UTC.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

pub(crate) struct Still(pub(crate) Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }
}

pub(crate) fn still() -> Arc<dyn Clock> {
    Arc::new(Still(NOW))
}

pub(crate) fn links() -> Arc<Links> {
    let keys = LinkKeys::new(("k1".into(), vec![7; 32]), vec![], 0).expect("good keys");
    Arc::new(Links::new("https://ops.example.com/cs", keys, Duration::from_secs(14 * 24 * 3600)))
}

pub(crate) fn notice(channel: ChannelName) -> Notice {
    let request = approval("Pay 1,200.00 EUR to Acme?")
        .message("The invoice came in today.\nIt is due on Friday.")
        .detail("Invoice", "2016-0417")
        .detail("Supplier", "Acme & Söhne <GmbH>")
        .requested_by("Jörg Müller")
        .to(role("manager"))
        .on_yes("the transfer is sent at once")
        .on_no("the invoice goes back")
        .request();
    let recipient = match channel {
        ChannelName::Email => Recipient {
            channel,
            principal: Principal::person("anna@example.com"),
            name: "Anna Example".into(),
            address: "anna@example.com".into(),
        },
        ChannelName::Webhook => Recipient {
            channel,
            principal: Principal::service("desk"),
            name: "desk".into(),
            address: "https://desk.example.com/hook".into(),
        },
    };
    Notice {
        delivery: DeliveryId::parse("0198c1f2-7a3b-7000-8000-0123456789ab").expect("id"),
        occasion: Occasion::Asked,
        thread: ThreadId::parse("invoice-17").expect("id"),
        graph: "payments".into(),
        interrupt: InterruptId::parse("80fcfb93000000000000000000000abc").expect("id"),
        printed_address: "payments/approve#0".into(),
        recipient,
        content_hash: request.content_hash(),
        request,
        revision: 1,
        asked_at: Timestamp::from_micros(1_799_999_000_000_000),
        deadline: Some(Timestamp::from_micros(1_800_100_000_000_000)),
        attempt: 1,
    }
}
