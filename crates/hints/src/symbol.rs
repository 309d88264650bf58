//! The function that a hook stands before, as its caller would have found it.
//!
//! The dynamic linker looks in the program and in the libraries that it was started with, and then in the caller's own
//! dependencies: a module of Python brings the HDF5 or MPI library that it is linked with, and nobody else sees it. Two
//! such libraries may be there at once, so what one caller finds is never kept for another.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

/// Objects of a process that are searched at most when nothing else has led to a function.
const OBJECTS_MAX: usize = 4096;

/// Where a caller's functions are found.
#[derive(Clone, Copy)]
pub struct Scope {
    /// The object with the code that called, if it is not the program itself.
    object: Option<Handle>,
}

/// A loaded object. Objects in use are not unloaded, so the reference that `dlopen` took is given back at once.
#[derive(Clone, Copy)]
struct Handle(*mut c_void);

impl Handle {
    /// `None` for what is not loaded under this name, and for the program, whose name is empty.
    fn of_name(name: *const c_char) -> Option<Self> {
        // SAFETY: names come from the dynamic linker and end in NUL.
        if name.is_null() || unsafe { *name } == 0 {
            return None;
        }
        // SAFETY: as above; nothing is loaded.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: `dlopen` has just returned it.
        unsafe { libc::dlclose(handle) };
        Some(Self(handle))
    }

    /// The symbol in this object or what it is linked with.
    fn find(self, name: &CStr) -> *mut c_void {
        // SAFETY: the object is loaded, the name ends in NUL.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

const NOTHING: libc::Dl_info = libc::Dl_info {
    dli_fname: ptr::null(),
    dli_fbase: ptr::null_mut(),
    dli_sname: ptr::null(),
    dli_saddr: ptr::null_mut(),
};

/// Name and address of the object that `address` lies in.
fn object_of(address: *const c_void) -> Option<(*const c_char, *mut c_void)> {
    let mut info = NOTHING;
    // SAFETY: any address may be asked for, and the answer goes to memory of this function's own.
    let found = unsafe { libc::dladdr(address, &mut info) } != 0;
    found.then_some((info.dli_fname, info.dli_fbase))
}

fn base_of(address: *const c_void) -> *mut c_void {
    object_of(address).map_or(ptr::null_mut(), |(_, base)| base)
}

fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// What the whole process sees under `name`; null if nothing.
pub fn of_process(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

impl Scope {
    /// The scope of the code at `caller`, null if that is not known.
    pub fn of(caller: *const c_void) -> Self {
        let object = if caller.is_null() { None } else { object_of(caller) };
        Self { object: object.and_then(|(name, _)| Handle::of_name(name)) }
    }

    /// What the caller would have found under `name` if this library were not there; null if nothing.
    pub fn find(&self, name: &CStr) -> *mut c_void {
        let is_ours = |address: *mut c_void| base_of(address) == base_of(of_process as *const c_void);
        let next = next(name);
        let own = self.object.map_or(ptr::null_mut(), |object| object.find(name));
        let own = if is_ours(own) { ptr::null_mut() } else { own };
        match (next.is_null(), own.is_null()) {
            (false, true) => next,
            (true, false) => own,
            // Of two libraries whose symbols have versions, the caller is bound to the one that it is linked with. A tool
            // has no versions and stands before both.
            (false, false) if base_of(next) != base_of(own) && has_version(next) && has_version(own) => own,
            (false, false) => next,
            (true, true) => first_loaded(name, is_ours),
        }
    }

    /// The object of this name, as all code sees it: the program itself may have the one copy that counts.
    pub fn find_object(&self, name: &CStr) -> *mut c_void {
        let seen = of_process(name);
        if seen.is_null() { self.find(name) } else { seen }
    }
}

/// The beginning of the dynamic linker's entry of an object, as `<link.h>` has it.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
    /// Tags and values, up to the tag 0.
    dynamic: *const [usize; 2],
}

/// Whether the symbol at `address` has a version in its object's table.
fn has_version(address: *mut c_void) -> bool {
    const DT_SYMTAB: usize = 6;
    const DT_VERSYM: usize = 0x6fff_fff0;
    const RTLD_DL_SYMENT: c_int = 1;
    const RTLD_DL_LINKMAP: c_int = 2;
    /// The version that means "global, without a name", and the bit for hidden ones.
    const UNNAMED: u16 = 1;
    const HIDDEN: u16 = 0x8000;
    unsafe extern "C" {
        fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: c_int) -> c_int;
    }
    let extra = |flags| {
        let (mut info, mut extra) = (NOTHING, ptr::null_mut());
        // SAFETY: any address may be asked for, and the answers go to memory of this function's own.
        let found = unsafe { dladdr1(address, &mut info, &mut extra, flags) } != 0;
        if found { extra } else { ptr::null_mut() }
    };
    let symbol = extra(RTLD_DL_SYMENT) as usize;
    // SAFETY: the dynamic linker answers with a pointer to an entry that lives as long as the object, or none.
    let Some(map) = (unsafe { extra(RTLD_DL_LINKMAP).cast::<LinkMap>().as_ref() }) else { return false };
    let (mut symbols, mut versions) = (0, 0);
    let mut entry = map.dynamic;
    loop {
        // SAFETY: the table ends with the tag 0, where this loop ends.
        let [tag, value] = unsafe { entry.read() };
        // Addresses are relative to the object's in the few tables that are read-only.
        let value = if value < map.address { value + map.address } else { value };
        match tag {
            0 => break,
            DT_SYMTAB => symbols = value,
            DT_VERSYM => versions = value,
            _ => {}
        }
        // SAFETY: this was not the last entry.
        entry = unsafe { entry.add(1) };
    }
    if symbol == 0 || symbols == 0 || versions == 0 {
        return false;
    }
    let index = (symbol - symbols) / size_of::<libc::Elf64_Sym>();
    // SAFETY: the table has a version for each symbol, of which this is one.
    let version = unsafe { (versions as *const u16).add(index).read() };
    version & !HIDDEN > UNNAMED
}

/// What the first loaded object that has it defines, for callers through pointers whose own objects do not.
fn first_loaded(name: &CStr, is_ours: impl Fn(*mut c_void) -> bool) -> *mut c_void {
    extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid entry, and the vector that the call below gave it.
        let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the dynamic linker's names end in NUL; this one is copied.
            names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        }
        c_int::from(names.len() >= OBJECTS_MAX)
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: `collect` gets the vector that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    let found = names.iter().filter_map(|object| Handle::of_name(object.as_ptr())).map(|object| object.find(name));
    found.filter(|address| !address.is_null()).find(|address| !is_ours(*address)).unwrap_or(ptr::null_mut())
}
