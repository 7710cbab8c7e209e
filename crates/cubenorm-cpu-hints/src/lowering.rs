//! Lowering to LLVM: a store with
//! [`nontemporal`](https://llvm.org/docs/LangRef.html#store-instruction) metadata, a fence on x86,
//! and a [`prefetch`](https://llvm.org/docs/LangRef.html#llvm-prefetch-intrinsic).

use cubecl::ir::prelude::*;
use cubecl_llvm::shared::to_llvm::ToLLVMDialect;
use cubecl_llvm::shared::to_llvm::constant::int_attr;
use cubecl_llvm::shared::to_llvm::ty::type_alignment;
use pliron_llvm::metadata::{
    MdNodeAttr, MdOperandAttr, attach_metadata, find_enclosing_module, get_metadata_table,
    set_metadata_table,
};
use pliron_llvm::op_interfaces::AlignableOpInterface;
use pliron_llvm::ops::{CallIntrinsicOp, ConstantOp, InlineAsmOp, StoreOp};
use pliron_llvm::types::{FuncType, VoidType};

use super::{FetchOp, StorePastCachesOp, WaitForStoresOp};

#[op_interface_impl]
impl ToLLVMDialect for StorePastCachesOp {
    fn rewrite(
        &self,
        ctx: &mut Context,
        rewriter: &mut DialectConversionRewriter,
        operands_info: &OperandsInfo,
    ) -> Result<()> {
        let (place, value) = (self.place(ctx), self.value(ctx));
        let of_kernel = operands_info.lookup_most_recent_type(value);
        let alignment = type_alignment(ctx, of_kernel.unwrap_or_else(|| value.get_type(ctx)));
        let store = StoreOp::new(ctx, value, place);
        store.set_alignment(ctx, alignment);
        rewriter.insert_op(ctx, &store);
        let module = find_enclosing_module(ctx, self.get_operation());
        let module = module.expect("a kernel's operations are in a module");
        let mut table = get_metadata_table(ctx, module).unwrap_or_default();
        let one = MdOperandAttr::Constant(Box::new(int_attr(ctx, 32, 1)));
        let node = table.push_uniqued(MdNodeAttr::new_tuple(vec![one]));
        set_metadata_table(ctx, module, table);
        attach_metadata(ctx, store.get_operation(), "nontemporal", node);
        rewriter.replace_operation(ctx, self.get_operation(), store.get_operation());
        Ok(())
    }
}

#[op_interface_impl]
impl ToLLVMDialect for WaitForStoresOp {
    fn rewrite(
        &self,
        ctx: &mut Context,
        rewriter: &mut DialectConversionRewriter,
        _operands_info: &OperandsInfo,
    ) -> Result<()> {
        // On other architectures a release orders LLVM's non-temporal stores.
        if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
            let nothing = VoidType::get(ctx).into();
            let fence = InlineAsmOp::new(ctx, nothing, vec![], "sfence", "~{memory}", true);
            rewriter.insert_op(ctx, &fence);
        }
        rewriter.erase_operation(ctx, self.get_operation());
        Ok(())
    }
}

#[op_interface_impl]
impl ToLLVMDialect for FetchOp {
    fn rewrite(
        &self,
        ctx: &mut Context,
        rewriter: &mut DialectConversionRewriter,
        _operands_info: &OperandsInfo,
    ) -> Result<()> {
        let place = self.place(ctx);
        let mut operands = vec![place];
        // Read access, highest locality, data cache.
        for number in [0, 3, 1] {
            let number = int_attr(ctx, 32, number);
            let constant = ConstantOp::new(ctx, Box::new(number));
            rewriter.insert_op(ctx, &constant);
            operands.push(constant.get_result(ctx));
        }
        let types = operands.iter().map(|it| it.get_type(ctx)).collect();
        let nothing = VoidType::get(ctx).into();
        let function = FuncType::get(ctx, nothing, types, false);
        let call = CallIntrinsicOp::new(ctx, "llvm.prefetch.p0".into(), function, operands);
        rewriter.insert_op(ctx, &call);
        rewriter.erase_operation(ctx, self.get_operation());
        Ok(())
    }
}
