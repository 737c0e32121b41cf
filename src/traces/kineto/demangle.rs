//! Demangles kernel names.
//!
//! CUPTI reports mangled names (Itanium C++ ABI), while PyTorch's traces have C++ names. Everything that matches kernel
//! names uses the latter.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Maximum characters of a C++ name: substitutions can expand a short symbol into a very long one.
const LONGEST: usize = 1 << 16;
/// Maximum nesting of names.
const DEEPEST: u32 = 96;

/// Demangled name, or the name itself if it is not a mangled one.
pub(super) fn kernel(name: &str) -> String {
    let parsing = ParseOptions::default().recursion_limit(DEEPEST);
    let writing = DemangleOptions::default().recursion_limit(DEEPEST);
    let mut out = Bounded(String::new());
    match Symbol::new_with_options(name, &parsing) {
        Ok(symbol) if symbol.structured_demangle(&mut out, &writing).is_ok() && !out.0.is_empty() => out.0,
        _ => name.to_owned(),
    }
}

/// A string with a maximum length.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::kernel;
    use proptest::prelude::*;

    #[test]
    fn linkers_names_become_those_of_the_source() {
        for (linker, source) in [
            ("_Z6vecAddPKfS0_Pfi", "vecAdd(float const*, float const*, float*, int)"),
            ("_Z6kernelIfLi128EEvPT_", "void kernel<float, 128>(float*)"),
            ("_ZN2at6native12_GLOBAL__N_14copyEv", "at::native::(anonymous namespace)::copy()"),
            ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_tn"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(kernel(linker), source);
        }
    }

    #[test]
    fn a_name_that_would_grow_without_end_stays() {
        // Each template argument is twice as long as the previous one.
        let bomb = format!("_Z1fI{}E", (0..40).fold("1a".to_owned(), |inner, _| format!("1pI{inner}S_E")));
        assert!(kernel(&bomb).len() <= super::LONGEST);
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(rest in "[A-Za-z0-9_]{0,60}") {
            let _ = kernel(&format!("_Z{rest}"));
        }
    }
}
