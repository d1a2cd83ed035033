"""API keys, cookies, wallet sign-in, members, and the authorization graph in SpiceDB.

Decides whether a credential is valid; `sightline.domain.access` decides what its holder may do.
Imports ports and domain. The adapters of its ports are in `sightline.storage` (`postgres.identity`,
`memory.identity`); contract wallets are called through `sightline.ports.chain`.

Public: `authenticate.Authenticator`, `sign_in.SignIn`, `signatures.SignatureVerifier`, `members.Members`,
`api_keys.ApiKeys`, `cookies.CookieCodec`, `key_codec.KeyHasher`, `origin.check_origin`, and, with the extra
`spicedb`, `spicedb.open_spicedb`.
"""
