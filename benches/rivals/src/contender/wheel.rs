use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::Contender;
use crate::workload::{Blocks, Chain};

/// `dynamo.llm.RadixTree` of the wheel `ai-dynamo-runtime`, called as Python calls it: events are JSON, hashes a list, and
/// every call goes through a thread of the wheel's. Its memory is not of our allocator, so it is in no table of bytes.
pub struct DynamoWheel {
    tree: Py<PyAny>,
}

fn event(data: &serde_json::Value) -> Py<PyBytes> {
    let json = serde_json::json!({ "event_id": 0, "data": data }).to_string();
    Python::attach(|python| PyBytes::new(python, json.as_bytes()).unbind())
}

impl Contender for DynamoWheel {
    const NAME: &'static str = "Dynamo wheel";
    type Query = Vec<u64>;
    type Event = (usize, Py<PyBytes>);

    fn with_replicas(_: usize) -> Self {
        let tree = Python::attach(|python| {
            let module = python.import("dynamo.llm").expect("the wheel ai-dynamo-runtime is installed");
            module.call_method0("RadixTree").expect("a tree without arguments").unbind()
        });
        DynamoWheel { tree }
    }

    fn query(chain: &Chain) -> Self::Query {
        chain.contents.clone()
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Self::Event {
        let block = |(name, content)| serde_json::json!({ "block_hash": name, "tokens_hash": content });
        let blocks: Vec<_> = blocks.pairs().map(block).collect();
        (replica, event(&serde_json::json!({ "stored": { "parent_hash": parent, "blocks": blocks } })))
    }

    fn removed(replica: usize, names: &[u64]) -> Self::Event {
        (replica, event(&serde_json::json!({ "removed": { "block_hashes": names } })))
    }

    fn apply(&self, (replica, event): &mut Self::Event) {
        Python::attach(|python| {
            self.tree.call_method1(python, "apply_event", (*replica, &*event)).expect("a known parent");
        });
    }

    fn lookup(&self, query: &mut Self::Query, _: &mut [u32]) {
        Python::attach(|python| {
            self.tree.call_method1(python, "find_matches", (&*query,)).expect("hashes that fit");
        });
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        out.fill(0);
        Python::attach(|python| {
            let found =
                self.tree.bind(python).call_method1("find_matches", (&chain.contents,)).expect("hashes that fit");
            let scores = found.getattr("scores").expect("an attribute of its result");
            for (worker, blocks) in scores.cast::<PyDict>().expect("a dict") {
                let (worker, _rank): (usize, usize) = worker.extract().expect("a worker and its rank");
                out[worker] = blocks.extract().expect("a number of blocks");
            }
        });
    }
}
