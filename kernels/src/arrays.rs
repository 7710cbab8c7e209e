//! Rows of a tile as a structure of arrays, which a rolled loop indexes.

/// Defines the arrays of a row type: `with_capacity`, `set` and `get`. Each field becomes an array.
/// Fields behind `with` are rows themselves, and become the arrays of their type.
macro_rules! rows_in_arrays {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident of $row:ident {
            $($field:ident: $element:ty,)*
        }
        $(with {
            $($inner:ident: $rows:ident,)*
        })?
    ) => {
        $(#[$attribute])*
        #[derive(CubeType)]
        $visibility struct $name<A: Float, N: Size> {
            $($field: Array<$element>,)*
            $($($inner: $rows<A, N>,)*)?
        }

        #[cube]
        impl<A: Float, N: Size> $name<A, N> {
            /// Allocates uninitialised space.
            $visibility fn with_capacity(#[comptime] rows: usize) -> Self {
                $name::<A, N> {
                    $($field: Array::<$element>::new(rows),)*
                    $($($inner: $rows::<A, N>::with_capacity(rows),)*)?
                }
            }

            $visibility fn set(&mut self, r: usize, row: &$row<A, N>) {
                $(self.$field[r] = row.$field;)*
                $($(self.$inner.set(r, &row.$inner);)*)?
            }

            $visibility fn get(&self, r: usize) -> $row<A, N> {
                $row::<A, N> {
                    $($field: self.$field[r],)*
                    $($($inner: self.$inner.get(r),)*)?
                }
            }
        }
    };
}

pub(crate) use rows_in_arrays;
