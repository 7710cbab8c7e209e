//! A kernel's use of a multiprocessor, as `ptxas -v` reports it.

/// Registers, and stack for values that did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    /// Registers of each unit.
    pub registers: u32,
    /// Bytes of each unit's stack, which is in device memory.
    pub stack: u32,
    /// Bytes that are stored because there are too few registers.
    pub spill_stores: u32,
    /// Bytes that are loaded back.
    pub spill_loads: u32,
}

impl Resources {
    /// True if units spill to memory.
    pub(super) fn uses_local_memory(self) -> bool {
        self.stack + self.spill_stores + self.spill_loads > 0
    }

    /// Reads what was written to standard error.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let before = |what: &str| number_before(text, what);
        Some(Self {
            registers: number_before(text, " registers")?,
            stack: before(" bytes stack frame").unwrap_or(0),
            spill_stores: before(" bytes spill stores").unwrap_or(0),
            spill_loads: before(" bytes spill loads").unwrap_or(0),
        })
    }
}

fn number_before(text: &str, what: &str) -> Option<u32> {
    let before = text.split(what).next().filter(|part| *part != text)?;
    before.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_spills_are_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
            ptxas info    : Function properties for k\n    \
            48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
            ptxas info    : Used 64 registers, used 1 barriers, 400 bytes cmem[0]\n";
        let expected = Resources {
            registers: 64,
            stack: 48,
            spill_stores: 12,
            spill_loads: 16,
        };
        assert_eq!(Resources::parse(text), Some(expected));
        assert!(expected.uses_local_memory());
        let clean = text
            .replace("48 bytes", "0 bytes")
            .replace("12 bytes", "0 bytes");
        let clean = clean.replace("16 bytes", "0 bytes");
        assert!(!Resources::parse(&clean).unwrap().uses_local_memory());
        assert_eq!(Resources::parse("ptxas fatal   : no"), None);
    }
}
