//! Functions with any number of arguments, which stable Rust cannot define.
//!
//! Rows of [`crate::calls`] that end in `...` export a few instructions under the C library's name: they put the arguments where the platform's
//! `va_list` expects them and call a Rust function with a pointer to that [`Arguments`] after the named ones. The pointer
//! is what C passes on for a `va_list`, so the same function serves the `v` variants as well.

use std::ffi::c_void;

/// `va_list` (System V ABI for x86-64, section 3.5.7).
#[cfg(target_arch = "x86_64")]
#[repr(C)]
pub struct Arguments {
    general_offset: u32,
    vector_offset: u32,
    overflow: *const *const c_void,
    saved: *const u8,
}

#[cfg(target_arch = "x86_64")]
impl Arguments {
    /// The next argument, a pointer.
    ///
    /// # Safety
    /// The caller of the variadic function passed one more, and it is a pointer.
    pub unsafe fn next_pointer(&mut self) -> *const c_void {
        const SAVED_LEN: u32 = 48;
        if self.general_offset < SAVED_LEN {
            // SAFETY: below its length, the area of saved registers contains one value in eight bytes.
            let argument = unsafe { self.saved.add(self.general_offset as usize).cast::<*const c_void>().read() };
            self.general_offset += 8;
            return argument;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let argument = self.overflow.read();
            self.overflow = self.overflow.add(1);
            argument
        }
    }
}

/// `va_list` (Procedure Call Standard for the Arm 64-bit Architecture, appendix B).
#[cfg(target_arch = "aarch64")]
#[repr(C)]
pub struct Arguments {
    stack: *const *const c_void,
    general_top: *const u8,
    vector_top: *const u8,
    general_offset: i32,
    vector_offset: i32,
}

#[cfg(target_arch = "aarch64")]
impl Arguments {
    /// The next argument, a pointer.
    ///
    /// # Safety
    /// The caller of the variadic function passed one more, and it is a pointer.
    pub unsafe fn next_pointer(&mut self) -> *const c_void {
        if self.general_offset < 0 {
            // SAFETY: the area of saved registers ends at its top and contains one value in eight bytes.
            let argument =
                unsafe { self.general_top.offset(self.general_offset as isize).cast::<*const c_void>().read() };
            self.general_offset += 8;
            return argument;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let argument = self.stack.read();
            self.stack = self.stack.add(1);
            argument
        }
    }
}

/// `variadic! { name(named arguments) by function }`: exports `name`, whose named arguments (at most three) are followed
/// by any others, and which does what the C function `function` does with the named ones and a `*mut Arguments`. That one
/// goes in the register in which the platform passes the argument after the named ones.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($name:ident($a:ident) by $function:path) => { variadic! { @ $name by $function, 1 named, then "rsi" } };
    ($name:ident($a:ident $b:ident) by $function:path) => { variadic! { @ $name by $function, 2 named, then "rdx" } };
    ($name:ident($a:ident $b:ident $c:ident) by $function:path) => { variadic! { @ $name by $function, 3 named, then "rcx" } };
    (@ $name:ident by $function:path, $named:literal named, then $next:literal) => {
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                // 24 bytes of `va_list`, 8 of padding, 176 of saved registers, 8 of alignment.
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                "mov dword ptr [rsp], 8 * {named}",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $next, ", rsp"),
                "call {function}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                named = const $named,
                function = sym $function,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! variadic {
    ($name:ident($a:ident) by $function:path) => { variadic! { @ $name by $function, 1 named, then "x1" } };
    ($name:ident($a:ident $b:ident) by $function:path) => { variadic! { @ $name by $function, 2 named, then "x2" } };
    ($name:ident($a:ident $b:ident $c:ident) by $function:path) => { variadic! { @ $name by $function, 3 named, then "x3" } };
    (@ $name:ident by $function:path, $named:literal named, then $next:literal) => {
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                // 32 bytes of `va_list`, 16 for the frame, 64 and 128 of saved registers.
                "sub sp, sp, #240",
                ".cfi_adjust_cfa_offset 240",
                "stp x29, x30, [sp, #32]",
                ".cfi_rel_offset x30, 40",
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                "add x8, sp, #240",
                "str x8, [sp]",
                "str x8, [sp, #16]",
                "add x8, sp, #112",
                "str x8, [sp, #8]",
                "mov w8, #(8 * {named} - 64)",
                "str w8, [sp, #24]",
                "mov w8, #-128",
                "str w8, [sp, #28]",
                concat!("mov ", $next, ", sp"),
                "bl {function}",
                "ldp x29, x30, [sp, #32]",
                "add sp, sp, #240",
                ".cfi_adjust_cfa_offset -240",
                "ret",
                ".cfi_endproc",
                named = const $named,
                function = sym $function,
            )
        }
    };
}
