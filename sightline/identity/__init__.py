"""API keys, cookies, wallet sign-in, members, and the authorization graph in SpiceDB.

Owns what a credential is and whether it is good; who may do what with it is `sightline.domain.access`.
Imports ports and domain. The adapters of its ports are in `sightline.storage` (`postgres.identity`,
`memory.identity`); the chain that judges contract wallets comes in through `sightline.ports.chain`.

Public: `authenticate.Authenticator`, `sign_in.SignIn`, `signatures.SignatureVerifier`, `members.Members`,
`api_keys.ApiKeys`, `cookies.CookieCodec`, `key_codec.KeyHasher`, `origin.check_origin`, and, with the extra
`spicedb`, `spicedb.open_spicedb`.
"""
