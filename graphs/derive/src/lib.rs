//! `#[derive(State)]`: the keys of a graph's state, from a plain struct.
//!
//! See the `State` trait in `countersign-kernel` for what it makes and how it
//! is used; this crate holds only the expansion.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Result, Type, parse_macro_input};

/// Implements `State` and makes `<Name>Update` with a setter per field.
#[proc_macro_derive(State, attributes(reduce, state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

#[derive(Clone, Copy, PartialEq)]
enum Reducer {
    Last,
    Append,
    Sum,
    Merge,
}

struct Key<'a> {
    ident: &'a Ident,
    ty: &'a Type,
    reducer: Reducer,
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
    let mut reducer = Reducer::Last;
    let mut defaulted = is_option(&field.ty);
    for attribute in &field.attrs {
        if attribute.path().is_ident("reduce") {
            let name: Ident = attribute.parse_args()?;
            reducer = match name.to_string().as_str() {
                "last" => Reducer::Last,
                "append" => Reducer::Append,
                "sum" => Reducer::Sum,
                "merge" => Reducer::Merge,
                _ => return Err(Error::new(name.span(), "expected one of: last, append, sum, merge")),
            };
        } else if attribute.path().is_ident("state") {
            let name: Ident = attribute.parse_args()?;
            if name != "default" {
                return Err(Error::new(name.span(), "expected: default"));
            }
            defaulted = true;
        }
    }
    let doc = format!("Writes the key `{ident}`.");
    Ok(Key { ident, ty: &field.ty, reducer, defaulted: defaulted || reducer != Reducer::Last, doc })
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
    let reducer = match key.reducer {
        Reducer::Last => quote!(Last),
        Reducer::Append => quote!(Append),
        Reducer::Sum => quote!(Sum),
        Reducer::Merge => quote!(Merge),
    };
    quote! {
        ::countersign_kernel::state::KeySpec {
            name: ::std::string::String::from(#name),
            reducer: ::countersign_kernel::state::Reducer::#reducer,
            required: #required,
            type_name: ::std::string::String::from(#type_name),
        }
    }
}

fn decode(key: &Key<'_>) -> Tokens {
    let (ident, name) = (key.ident, key_name(key));
    let function = if key.defaulted { quote!(decode_key_or_default) } else { quote!(decode_key) };
    quote!(#ident: ::countersign_kernel::state::#function(values, #name)?)
}

fn patch(key: &Key<'_>) -> Tokens {
    let (ident, name, ty) = (key.ident, key_name(key), key.ty);
    let appended = if key.reducer == Reducer::Append {
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
    if key.reducer == Reducer::Append {
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
