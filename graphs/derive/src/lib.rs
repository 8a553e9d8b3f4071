//! `#[derive(State)]`: the keys of a graph's state, from a plain struct.
//!
//! See the `State` trait in `countersign-kernel` for what it makes and how it
//! is used; this crate holds only the expansion.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote, quote_spanned};
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, ExprPath, Field, Fields, Ident, LitStr, Result, Token, Type, parse_macro_input};

/// Implements `State` and makes `<Name>Update` with a setter per field.
///
/// `#[reduce(last)]` (the default), `append`, `sum` and `merge` say how writes to
/// a field combine; `#[reduce(with = "path::to::function")]` names a function of
/// the value and the write that returns the new value, or a `Result` of it.
/// `#[state(default)]` starts a field with its default.
///
/// A function that does not fit its field does not compile:
///
/// ```compile_fail,E0277
/// # use countersign_kernel::prelude::*;
/// fn shown(a: u32, b: u32) -> String { format!("{a}, {b}") }
///
/// #[derive(State)]
/// struct Case {
///     #[reduce(with = "shown")]
///     n: u32,
/// }
/// ```
///
/// ```compile_fail,E0631
/// # use countersign_kernel::prelude::*;
/// fn added(a: i64, b: i64) -> i64 { a + b }
///
/// #[derive(State)]
/// struct Case {
///     #[reduce(with = "added")]
///     n: String,
/// }
/// ```
///
/// ```compile_fail,E0593
/// # use countersign_kernel::prelude::*;
/// fn negated(a: i64) -> i64 { -a }
///
/// #[derive(State)]
/// struct Case {
///     #[reduce(with = "negated")]
///     n: i64,
/// }
/// ```
///
/// Nor does one that is not there, or a default that there is none of:
///
/// ```compile_fail,E0425
/// # use countersign_kernel::prelude::*;
/// #[derive(State)]
/// struct Case {
///     #[reduce(with = "larger")]
///     n: u32,
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use countersign_kernel::prelude::*;
/// # use std::num::NonZeroU32;
/// #[derive(State)]
/// struct Case {
///     #[reduce(with = "std::cmp::max")]
///     #[state(default)]
///     n: NonZeroU32,
/// }
/// ```
#[proc_macro_derive(State, attributes(reduce, state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

enum Reducer {
    Last,
    Append,
    Sum,
    Merge,
    /// A function of the flow's own, and how it was written.
    With(ExprPath, LitStr),
}

const REDUCERS: &str = "expected one of: last, append, sum, merge, with = \"path::to::function\"";

impl Reducer {
    /// What stands in `#[reduce(…)]`.
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse().map_err(|error| Error::new(error.span(), REDUCERS))?;
        let reducer = match name.to_string().as_str() {
            "last" => Self::Last,
            "append" => Self::Append,
            "sum" => Self::Sum,
            "merge" => Self::Merge,
            "with" => {
                let written: LitStr = input
                    .parse::<Token![=]>()
                    .and_then(|_| input.parse())
                    .map_err(|error| Error::new(error.span(), "expected: with = \"path::to::function\""))?;
                let path = written.parse().map_err(|_| Error::new(written.span(), "this is no path to a function"))?;
                Self::With(path, written)
            }
            _ => return Err(Error::new(name.span(), REDUCERS)),
        };
        if input.is_empty() { Ok(reducer) } else { Err(input.error("a key has one reducer")) }
    }
}

struct Key<'a> {
    ident: &'a Ident,
    ty: &'a Type,
    reducer: Reducer,
    /// Whether `#[state(default)]` stands there.
    says_default: bool,
    /// Whether it need not be in the input.
    defaulted: bool,
    doc: String,
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "State is derived for structs: each field is a key"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(data.fields.span(), "State needs named fields: each name is a key"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "State takes no generic parameters"));
    }
    let keys = fields.named.iter().map(key).collect::<Result<Vec<_>>>()?;
    let (name, vis) = (&input.ident, &input.vis);
    let update = format_ident!("{name}Update");
    let update_doc = format!("Writes to the keys of [`{name}`].");

    let specs = keys.iter().map(spec);
    let decodes = keys.iter().map(decode);
    let faults = keys.iter().map(fault);
    let patches = keys.iter().map(patch);
    let setters = keys.iter().map(setter);
    Ok(quote! {
        #[doc = #update_doc]
        #[derive(Debug, Clone, Default)]
        #[must_use = "an update takes effect only when the node returns it"]
        #vis struct #update(::countersign_kernel::state::Writes);

        #[allow(dead_code, reason = "a flow need not write every key")]
        impl #update {
            #(#setters)*
        }

        impl ::std::convert::From<#update> for ::countersign_kernel::state::Writes {
            fn from(update: #update) -> Self {
                update.0
            }
        }

        impl #name {
            /// An update that changes nothing yet.
            #vis fn update() -> #update {
                #update::default()
            }
        }

        impl ::countersign_kernel::state::State for #name {
            type Update = #update;

            fn schema() -> ::countersign_kernel::state::Schema {
                ::std::vec![#(#specs),*]
            }

            fn decode(
                values: &::countersign_kernel::state::Values,
            ) -> ::std::result::Result<Self, ::countersign_kernel::state::StateFault> {
                ::std::result::Result::Ok(Self { #(#decodes),* })
            }

            fn faults(
                values: &::countersign_kernel::state::Values,
            ) -> ::std::vec::Vec<::countersign_kernel::state::StateFault> {
                let faults: ::std::vec::Vec<::std::option::Option<::countersign_kernel::state::StateFault>> =
                    ::std::vec![#(#faults),*];
                faults.into_iter().flatten().collect()
            }

            fn patch(
                &mut self,
                key: &str,
                change: &::countersign_kernel::state::Change,
            ) -> ::std::result::Result<(), ::countersign_kernel::state::StateFault> {
                match key {
                    #(#patches)*
                    _ => {}
                }
                ::std::result::Result::Ok(())
            }
        }
    })
}

fn key(field: &Field) -> Result<Key<'_>> {
    let ident = field.ident.as_ref().ok_or_else(|| Error::new(field.span(), "State needs named fields"))?;
    let mut reducer = None;
    let (mut says_default, option) = (false, is_option(&field.ty));
    for attribute in &field.attrs {
        if attribute.path().is_ident("reduce") {
            if reducer.is_some() {
                return Err(Error::new(attribute.span(), "a key has one reducer"));
            }
            reducer = Some(attribute.parse_args_with(Reducer::parse)?);
        } else if attribute.path().is_ident("state") {
            let name: Ident = attribute.parse_args()?;
            if name != "default" {
                return Err(Error::new(name.span(), "expected: default"));
            }
            says_default = true;
        }
    }
    let reducer = reducer.unwrap_or(Reducer::Last);
    let has_neutral = matches!(reducer, Reducer::Append | Reducer::Sum | Reducer::Merge);
    let doc = format!("Writes the key `{ident}`.");
    Ok(Key { ident, ty: &field.ty, reducer, says_default, defaulted: says_default || option || has_neutral, doc })
}

fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == "Option"))
}

fn key_name(key: &Key<'_>) -> String {
    let text = key.ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn spec(key: &Key<'_>) -> Tokens {
    let name = key_name(key);
    let required = !key.defaulted;
    let ty = key.ty;
    let type_name = quote!(#ty).to_string().replace(' ', "");
    let built_in = |name: Tokens| quote!(::countersign_kernel::state::Reducer::#name);
    let reducer = match &key.reducer {
        Reducer::Last => built_in(quote!(Last)),
        Reducer::Append => built_in(quote!(Append)),
        Reducer::Sum => built_in(quote!(Sum)),
        Reducer::Merge => built_in(quote!(Merge)),
        Reducer::With(function, written) => reduce_with(key, function, written),
    };
    quote! {
        ::countersign_kernel::state::KeySpec {
            name: ::std::string::String::from(#name),
            reducer: #reducer,
            required: #required,
            type_name: ::std::string::String::from(#type_name),
        }
    }
}

/// A reducer that calls a function of the flow's own. A function that does not
/// fit is reported where it is named.
fn reduce_with(key: &Key<'_>, function: &ExprPath, written: &LitStr) -> Tokens {
    let ty = key.ty;
    let name: String = written.value().split_whitespace().collect();
    let neutral = if key.says_default {
        quote!(::std::option::Option::Some(<#ty as ::std::default::Default>::default()))
    } else {
        quote!(::std::option::Option::None)
    };
    quote_spanned! {written.span()=>
        ::countersign_kernel::state::reduce_with::<#ty, _>(#name, #neutral, #function)
    }
}

fn decode(key: &Key<'_>) -> Tokens {
    let (ident, name, function) = (key.ident, key_name(key), reader(key));
    quote!(#ident: ::countersign_kernel::state::#function(values, #name)?)
}

fn fault(key: &Key<'_>) -> Tokens {
    let (ty, name, function) = (key.ty, key_name(key), reader(key));
    quote!(::countersign_kernel::state::#function::<#ty>(values, #name).err())
}

fn reader(key: &Key<'_>) -> Tokens {
    if key.defaulted { quote!(decode_key_or_default) } else { quote!(decode_key) }
}

fn patch(key: &Key<'_>) -> Tokens {
    let (ident, name, ty) = (key.ident, key_name(key), key.ty);
    let appended = if matches!(key.reducer, Reducer::Append) {
        quote! {
            ::countersign_kernel::state::Change::Appended(items) => {
                for item in items {
                    self.#ident.push(::countersign_kernel::state::decode_value(#name, item)?);
                }
            }
        }
    } else {
        quote! {
            ::countersign_kernel::state::Change::Appended(_) => {}
        }
    };
    quote! {
        #name => match change {
            ::countersign_kernel::state::Change::Set(value) => {
                self.#ident = ::countersign_kernel::state::decode_value::<#ty>(#name, value)?;
            }
            #appended
        },
    }
}

fn setter(key: &Key<'_>) -> Tokens {
    let (ident, name, ty, doc) = (key.ident, key_name(key), key.ty, &key.doc);
    if matches!(key.reducer, Reducer::Append) {
        let doc = format!("Appends to the key `{name}`.");
        return quote! {
            #[doc = #doc]
            pub fn #ident(self, item: <#ty as ::std::iter::IntoIterator>::Item) -> Self {
                Self(self.0.with(#name, &[item]))
            }
        };
    }
    quote! {
        #[doc = #doc]
        #[allow(clippy::needless_pass_by_value, reason = "setters read best when they take the value")]
        pub fn #ident(self, value: #ty) -> Self {
            Self(self.0.with(#name, &value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a struct with these fields.
    fn said(fields: &str) -> String {
        let input = syn::parse_str(&format!("struct Case {{ {fields} }}")).expect("a struct");
        expand(&input).map(|made| made.to_string()).expect_err("not derived").to_string()
    }

    #[test]
    fn a_reducer_is_one_of_those_that_there_are() {
        for words in ["add", "", "\"sum\"", "With = \"f\""] {
            assert_eq!(said(&format!("#[reduce({words})] n: u32")), REDUCERS, "{words}");
        }
        for words in ["sum, with = \"f\"", "with = \"f\", sum", "sum = \"f\""] {
            assert_eq!(said(&format!("#[reduce({words})] n: u32")), "a key has one reducer", "{words}");
        }
        assert_eq!(said("#[reduce(sum)] #[reduce(with = \"f\")] n: u32"), "a key has one reducer");
        assert_eq!(said("#[state(required)] n: u32"), "expected: default");
    }

    #[test]
    fn a_function_is_named_by_its_path_as_text() {
        for words in ["with", "with = std::cmp::max", "with(\"f\")", "with = 3"] {
            assert_eq!(
                said(&format!("#[reduce({words})] n: u32")),
                "expected: with = \"path::to::function\"",
                "{words}"
            );
        }
        for text in ["the larger one", "|a, b| a", "", "f()"] {
            let words = format!("#[reduce(with = \"{text}\")] n: u32");
            assert_eq!(said(&words), "this is no path to a function", "{text}");
        }
        for text in ["f", "self::f", "crate::a::f", "Option::max", "<u32 as Ord>::max", "Vec::<u8>::f", "a :: f"] {
            let input = syn::parse_str(&format!("struct Case {{ #[reduce(with = \"{text}\")] n: u32 }}"));
            let made = expand(&input.expect("a struct"));
            assert!(made.is_ok(), "{text}: {:?}", made.err());
        }
    }

    #[test]
    fn only_structs_with_named_fields_have_keys() {
        for (item, expected) in [
            ("enum Case { A }", "State is derived for structs: each field is a key"),
            ("struct Case(u32);", "State needs named fields: each name is a key"),
            ("struct Case<T> { n: T }", "State takes no generic parameters"),
        ] {
            let error = expand(&syn::parse_str(item).expect("an item")).expect_err("not derived");
            assert_eq!(error.to_string(), expected);
        }
    }
}
