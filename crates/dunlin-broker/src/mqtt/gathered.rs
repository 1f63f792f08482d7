//! Messages of another shard, as PUBLISH.

use dunlin_base::ShardId;

use crate::messages::publish;
use crate::messages::source::Source;
use crate::mqtt::crossing;
use crate::mqtt::form::Form;
use crate::owners::Owners;

/// Routes them one by one.
pub(crate) fn handle_messages(own: &mut Owners, from: ShardId, messages: &[u8]) {
    let mut rest = messages;
    while let Some((token, packet)) = crossing::take(&mut rest) {
        let mut source = Source::new(Form::of_packet(&packet, None).into(), None, own.now);
        publish::handle_message(own, from, token, &mut source);
    }
    // Shards write nothing else.
    own.stats.internal_errors += u64::from(!rest.is_empty());
}
