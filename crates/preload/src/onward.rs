//! Hooks that leave no trace: a function of ours says with which first argument to go on to which function, and the caller's
//! return address stays what it was. For functions that look at their caller, and have two arguments.

/// Exports `$name`, made of these instructions.
macro_rules! naked {
    ($name:ident by $function:path, $($line:literal,)+) => {
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            std::arch::naked_asm!(".cfi_startproc", $($line,)+ ".cfi_endproc", function = sym $function)
        }
    };
}

/// Exports `$name`, which asks `$function` with its arguments and goes on to where that says.
#[cfg(target_arch = "x86_64")]
macro_rules! onward {
    ($name:ident by $function:path) => {
        naked! { $name by $function,
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "call {function}",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "mov rdi, rax",
            "jmp rdx",
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! onward {
    ($name:ident by $function:path) => {
        naked! { $name by $function,
            "stp x29, x30, [sp, #-32]!",
            ".cfi_adjust_cfa_offset 32",
            ".cfi_rel_offset x30, 8",
            "str x1, [sp, #16]",
            "bl {function}",
            "mov x16, x1",
            "ldr x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_adjust_cfa_offset -32",
            "br x16",
        }
    };
}
