// SPDX-License-Identifier: GPL-2.0
//! Version negotiation: the first message of a client, and what both sides may do after it.

use rustix::io::Errno;
use serde_json::Map;
use serde_json::Value;

use crate::memory::PAGE_SIZE;
use crate::proto::Fields;
use crate::proto::MAX_DMA_MAPS;
use crate::proto::MAX_FDS;
use crate::proto::MAX_TRANSFER;
use crate::proto::VERSION_MAJOR;
use crate::proto::VERSION_MINOR;

/// Longest version data. A parsed text takes many times its size, and an honest one has some 200 bytes.
const MAX_TEXT: usize = 16 << 10;

/// What was agreed with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// File descriptors that the client takes in one message.
    pub(crate) client_fds: u64,
    /// The client may send REGION_WRITE_MULTI.
    pub(crate) write_multiple: bool,
    /// Capabilities that the client named; the answer names no others.
    named: Named,
}

bitflags::bitflags! {
    /// The capabilities that both sides know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Named: u8 {
        const MAX_MSG_FDS = 1 << 0;
        const MAX_DATA_XFER_SIZE = 1 << 1;
        const MAX_DMA_MAPS = 1 << 2;
        const PGSIZES = 1 << 3;
        const WRITE_MULTIPLE = 1 << 4;
    }
}

impl Agreement {
    /// Reads the client's proposal.
    ///
    /// Capabilities that the server does not know are ignored; those it knows have to be of the right type.
    ///
    /// # Errors
    ///
    /// `ENOTSUP` for another major version; `EINVAL` for a malformed message.
    pub(crate) fn from_proposal(payload: &[u8]) -> Result<Self, Errno> {
        let mut fields = Fields(payload);
        // The answer's minor version is the server's: 0, which every client speaks.
        let (major, _minor) = (fields.u16()?, fields.u16()?);
        if major != VERSION_MAJOR {
            return Err(Errno::NOTSUP);
        }
        let mut agreement = Self {
            // The protocol's default for a client that does not say.
            client_fds: 1,
            write_multiple: false,
            named: Named::empty(),
        };
        let text = match fields.rest() {
            [] | [0] => return Ok(agreement),
            [text @ .., 0] if text.len() <= MAX_TEXT => text,
            _ => return Err(Errno::INVAL),
        };
        // serde_json limits the nesting.
        let data: Value = serde_json::from_slice(text).map_err(|_| Errno::INVAL)?;
        let data = data.as_object().ok_or(Errno::INVAL)?;
        if let Some(capabilities) = data.get("capabilities") {
            agreement.read(capabilities.as_object().ok_or(Errno::INVAL)?)?;
        }
        Ok(agreement)
    }

    fn read(&mut self, capabilities: &Map<String, Value>) -> Result<(), Errno> {
        let number = |value: &Value| value.as_u64().ok_or(Errno::INVAL);
        if let Some(value) = capabilities.get("max_msg_fds") {
            self.client_fds = number(value)?;
            self.named |= Named::MAX_MSG_FDS;
        }
        // The next three bound what is sent *to* the client, or what it will map: nothing of this
        // server's depends on them, beyond their being numbers.
        if let Some(value) = capabilities.get("max_data_xfer_size") {
            number(value)?;
            self.named |= Named::MAX_DATA_XFER_SIZE;
        }
        if let Some(value) = capabilities.get("max_dma_maps") {
            number(value)?;
            self.named |= Named::MAX_DMA_MAPS;
        }
        if let Some(value) = capabilities.get("pgsizes") {
            number(value)?;
            self.named |= Named::PGSIZES;
        }
        if let Some(value) = capabilities.get("write_multiple") {
            self.write_multiple = value.as_bool().ok_or(Errno::INVAL)?;
            self.named |= Named::WRITE_MULTIPLE;
        }
        Ok(())
    }

    /// The payload of the answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let mut capabilities = Map::new();
        let mut put = |capability, name: &str, value: Value| {
            if self.named.contains(capability) {
                capabilities.insert(name.into(), value);
            }
        };
        put(Named::MAX_MSG_FDS, "max_msg_fds", MAX_FDS.into());
        put(
            Named::MAX_DATA_XFER_SIZE,
            "max_data_xfer_size",
            MAX_TRANSFER.into(),
        );
        put(Named::MAX_DMA_MAPS, "max_dma_maps", MAX_DMA_MAPS.into());
        put(Named::PGSIZES, "pgsizes", PAGE_SIZE.into());
        put(
            Named::WRITE_MULTIPLE,
            "write_multiple",
            self.write_multiple.into(),
        );
        let mut data = Map::new();
        data.insert("capabilities".into(), Value::Object(capabilities));

        let mut payload = Vec::new();
        payload.extend(VERSION_MAJOR.to_le_bytes());
        payload.extend(VERSION_MINOR.to_le_bytes());
        payload.extend(Value::Object(data).to_string().into_bytes());
        payload.push(0);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(major: u16, minor: u16, text: &[u8]) -> Vec<u8> {
        [&major.to_le_bytes()[..], &minor.to_le_bytes(), text].concat()
    }

    #[test]
    fn answer_names_only_what_the_client_named() {
        let text = b"{\"capabilities\":{\"max_msg_fds\":8,\"write_multiple\":true,\"news\":[1]}}\0";
        let agreement = Agreement::from_proposal(&proposal(0, 3, text)).unwrap();
        assert!(agreement.write_multiple);
        assert_eq!(agreement.client_fds, 8);
        let expected = b"{\"capabilities\":{\"max_msg_fds\":16,\"write_multiple\":true}}\0";
        assert_eq!(agreement.answer(), proposal(0, 0, expected));
    }

    #[test]
    fn version_data_is_optional() {
        for text in [&b""[..], b"\0", b"{}\0"] {
            let agreement = Agreement::from_proposal(&proposal(0, 0, text)).unwrap();
            assert!(!agreement.write_multiple);
            assert_eq!(agreement.client_fds, 1);
        }
    }

    #[test]
    fn malformed_version_data_is_refused() {
        let deep = [&b"[".repeat(5000)[..], b"\0"].concat();
        let long = [&b" ".repeat(MAX_TEXT)[..], b"{}\0"].concat();
        for text in [
            &b"{}"[..],
            b"{\0",
            b"[]\0",
            b"7\0",
            b"\xff\xfe\0",
            b"{}\0\0",
            b"{\"capabilities\":3}\0",
            b"{\"capabilities\":{\"max_msg_fds\":\"8\"}}\0",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}\0",
            b"{\"capabilities\":{\"max_data_xfer_size\":1e400}}\0",
            b"{\"capabilities\":{\"max_dma_maps\":1.5}}\0",
            b"{\"capabilities\":{\"pgsizes\":null}}\0",
            b"{\"capabilities\":{\"write_multiple\":1}}\0",
            &deep,
            &long,
        ] {
            let result = Agreement::from_proposal(&proposal(0, 0, text));
            assert_eq!(
                result,
                Err(Errno::INVAL),
                "{:?}",
                String::from_utf8_lossy(text)
            );
        }
        for short in [&b""[..], b"\0", b"\0\0\0"] {
            assert_eq!(Agreement::from_proposal(short), Err(Errno::INVAL));
        }
    }

    #[test]
    fn another_major_version_is_refused() {
        assert_eq!(
            Agreement::from_proposal(&proposal(1, 0, b"{}\0")),
            Err(Errno::NOTSUP)
        );
    }
}
