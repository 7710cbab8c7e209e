//! Checks the structure of MSL, because its compiler exists on macOS only.

use std::collections::HashSet;

/// Types that Metal lacks.
const UNSUPPORTED: [&str; 2] = ["double", "float64_t"];

/// Checks for matching brackets, a single kernel, distinct buffer indices, and no types that Metal
/// lacks.
pub fn check(text: &str) -> Result<(), String> {
    brackets(text)?;
    let kernels = words(text).filter(|&word| word == "kernel").count();
    if kernels != 1 {
        return Err(format!("found {kernels} kernels: expected 1"));
    }
    if let Some(word) = words(text).find(|word| UNSUPPORTED.contains(word)) {
        return Err(format!("Metal has no `{word}`"));
    }
    let mut seen = HashSet::new();
    for index in buffers(text) {
        if !seen.insert(index) {
            return Err(format!("two arguments are buffer {index}"));
        }
    }
    match seen.is_empty() {
        true => Err("no argument is a buffer".to_owned()),
        false => Ok(()),
    }
}

fn brackets(text: &str) -> Result<(), String> {
    let mut open = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for c in line.chars() {
            let closing = match c {
                '(' => ')',
                '[' => ']',
                '{' => '}',
                ')' | ']' | '}' if open.pop() != Some(c) => {
                    return Err(format!("`{c}` in line {} closes nothing", number + 1));
                }
                _ => continue,
            };
            open.push(closing);
        }
    }
    match open.last() {
        Some(closing) => Err(format!("`{closing}` is missing")),
        None => Ok(()),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The indices of `[[buffer(N)]]`.
fn buffers(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("buffer(").skip(1);
    after.filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(arguments: &str, body: &str) -> String {
        format!("kernel void f({arguments}) {{ {body} }}")
    }

    const ARGUMENTS: &str = "device float* a [[buffer(0)]], device float* b [[buffer(1)]]";

    #[test]
    fn kernel_of_two_buffers_is_valid() {
        check(&kernel(ARGUMENTS, "a[0] = b[0];")).unwrap();
    }

    #[test]
    fn invalid_msl_is_reported() {
        let wrong = |text: &str| check(text).unwrap_err();
        assert_eq!(
            wrong(&kernel(ARGUMENTS, "a[0] = b[0;")),
            "`}` in line 1 closes nothing"
        );
        let twice = ARGUMENTS.replace("buffer(1)", "buffer(0)");
        assert_eq!(wrong(&kernel(&twice, "")), "two arguments are buffer 0");
        let double = kernel(ARGUMENTS, "double x = 0;");
        assert_eq!(wrong(&double), "Metal has no `double`");
        assert_eq!(wrong(&kernel("float a", "")), "no argument is a buffer");
        assert_eq!(wrong("void f() {}"), "found 0 kernels: expected 1");
    }
}
