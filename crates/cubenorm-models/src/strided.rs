use cubenorm_core::{Layout, TensorDesc};

/// Addresses of a layout's elements, in row-major order of their indices.
fn addresses(layout: &Layout) -> impl Iterator<Item = usize> {
    let count = layout.checked_elements().unwrap_or(0);
    let mut index = vec![0; layout.rank()];
    let mut address = 0;
    (0..count).map(move |_| {
        let current = address;
        for dim in (0..index.len()).rev() {
            index[dim] += 1;
            address += layout.strides[dim];
            if index[dim] < layout.shape[dim] {
                break;
            }
            address -= index[dim] * layout.strides[dim];
            index[dim] = 0;
        }
        current
    })
}

/// Copies the elements of `desc` from one buffer to another, without the gaps between them. Both
/// buffers cover its span.
pub(crate) fn copy_elements(desc: &TensorDesc, from: &[u8], to: &mut [u8]) {
    let size = desc.dtype.size();
    if desc.layout.is_dense() {
        let bytes = desc.layout.checked_elements().unwrap_or(0) * size;
        return to[..bytes].copy_from_slice(&from[..bytes]);
    }
    for at in addresses(&desc.layout).map(|address| address * size) {
        to[at..at + size].copy_from_slice(&from[at..at + size]);
    }
}

/// Collects the elements of `desc` in row-major order. `buffer` covers its span.
pub(crate) fn row_major(desc: &TensorDesc, buffer: &[u8]) -> Vec<u8> {
    let size = desc.dtype.size();
    if desc.layout == Layout::contiguous(desc.layout.shape.clone()) {
        let bytes = desc.layout.checked_elements().unwrap_or(0) * size;
        return buffer[..bytes].to_vec();
    }
    let starts = addresses(&desc.layout).map(|address| address * size);
    starts
        .flat_map(|at| &buffer[at..at + size])
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use cubenorm_core::DType;

    use super::*;

    #[test]
    fn copies_elements_in_order_without_gaps() {
        let desc = TensorDesc::new(Layout::strided([2, 2], [1, 3]), DType::F16);
        let from: Vec<u8> = (0..10).collect();
        let mut to = vec![255; 10];
        copy_elements(&desc, &from, &mut to);
        assert_eq!(to, [0, 1, 2, 3, 255, 255, 6, 7, 8, 9]);
        assert_eq!(row_major(&desc, &from), [0, 1, 6, 7, 2, 3, 8, 9]);
    }
}
