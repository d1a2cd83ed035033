export interface paths {
    "/.well-known/sightline-certificates.pem": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The certificates that verify signed frames
         * @description PEM: the certificate that signs frames now, then its issuers. The last one is the root to trust.
         */
        get: operations["getCertificates"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/auth/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End the sign-in and clear the session cookie */
        post: operations["logout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/auth/wallet/challenge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a text to sign in with */
        post: operations["challengeLogin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/auth/wallet/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sign in with a signature; sets the cookie svc_session (__Host-svc_session over https) */
        post: operations["login"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/auth/workspace/select": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pick the workspace to act for; re-issues the cookie */
        post: operations["selectWorkspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The chain and its contracts */
        get: operations["getConfig"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/coverage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Count the operators online per cell of 0.1 degrees
         * @description Counts each ONLINE operator that was seen within 60 s in the cell of its coverage centre. Never shows a position. The counts are up to 5 s old; the timestamp says how old.
         *
         *     Scope of an API key: pricing:read.
         */
        get: operations["getCoverage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Health probe */
        get: operations["getHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Identify the caller */
        get: operations["getMe"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the open sign-ins of the wallet */
        get: operations["listWalletSessions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** End a sign-in of the wallet; its cookie is refused from then on */
        delete: operations["endWalletSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/pricing/quote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Price a place and a duration; the quote lives 120 s and can be used once
         * @description The factors multiply to the rate. Bound to the workspace; good within 50 m of the point.
         *
         *     Scope of an API key: pricing:read.
         */
        get: operations["getQuote"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List sessions, newest first
         * @description view=open shows what an operator may accept: REQUESTED, unexpired, inside its coverage.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["listSessions"];
        put?: never;
        /**
         * Request live video of a place
         * @description Locks the rate (the quote's, else the spot rate) and reserves it for maxDurationSeconds.
         *
         *     Scope of an API key: sessions:create.
         */
        post: operations["createSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a session
         * @description Scope of an API key: sessions:read.
         */
        get: operations["getSession"];
        put?: never;
        post?: never;
        /**
         * Consumer: withdraw a request
         * @description Scope of an API key: sessions:create.
         */
        delete: operations["cancelSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/accept": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Operator: claim a requested session
         * @description Scope of an API key: sessions:operate.
         */
        post: operations["acceptSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/dispatch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Consumer: assign the longest-idle operator
         * @description One atomic decision: an ONLINE operator becomes BUSY and has the session. 503 UNAVAILABLE when there is none. 429 RATE_LIMITED when too many dispatched sessions of the workspace are not started, or were abandoned lately.
         *
         *     Scope of an API key: sessions:create.
         */
        post: operations["dispatchSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/end": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Either party: hang up
         * @description An API key with sessions:create ends as the consumer, one with sessions:operate as the operator. The charge is fixed at this moment; a second end changes nothing.
         *
         *     Scope of an API key: sessions:create or sessions:operate.
         */
        post: operations["endSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A session and its meter, now and on every change
         * @description Sends the current state first. `location` comes at most once a second while LIVE. `id` counts per stream and continues after Last-Event-ID. A comment every 15 s keeps the stream open; it ends after an hour.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["watchSession"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/frame": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The newest frame as JPEG
         * @description The headers describe the frame and the feed. With `after` and `waitMs` the answer is sent as soon as there is a newer frame, else 304. Never returns a placeholder picture. The JPEG has EXIF and XMP metadata (capture time, position, session, sequence); with `signed=1` it is also signed by C2PA.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["getFrame"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/frames": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Frames as multipart/x-mixed-replace
         * @description Each part is one JPEG with the headers of the frame call. Ends with the session.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["streamFrames"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/meter": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the meter and its evidence
         * @description Scope of an API key: sessions:read.
         */
        get: operations["getMeter"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/meter/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the recorded events of a session, oldest first
         * @description Each event has the hash of the chain up to it, so that a later change of an event can be found.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["listMeterEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/receipt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the receipt of a session that is over
         * @description Has everything that is needed to recompute the hash chain, the clean seconds, the charge and the fee, and to find the event Settled on the chain. 409 `session:notOver` before the session is over.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["getReceipt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Operator: go live
         * @description Creates the live input. whipUrl embeds a secret. After 503 VIDEO_ERROR the session is still ASSIGNED; a retry is safe.
         *
         *     Scope of an API key: sessions:operate.
         */
        post: operations["startSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{id}/viewer-token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Where to play a LIVE session
         * @description Scope of an API key: sessions:read.
         */
        get: operations["getViewerToken"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/cancel-all-assignments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Operator: drop every ASSIGNED session
         * @description Scope of an API key: sessions:operate.
         */
        post: operations["cancelAllAssignments"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/settlements/{sessionId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How far the settlement of a session is
         * @description NOT_READY before the end, PENDING once composed, CONFIRMED once mined.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["getSettlement"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get sessions, seconds and money by day
         * @description Counts ended sessions by the UTC day on which their end was recorded, settled or not; write-offs are left out. At most 366 days. `format=csv` or `Accept: text/csv` returns CSV without envelope.
         *
         *     Scope of an API key: wallet:read.
         */
        get: operations["getUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/wallet": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Balance, allowance and holds of the caller's wallet
         * @description Scope of an API key: wallet:read.
         */
        get: operations["getWallet"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/wallet/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * On-chain events of the wallet, newest first
         * @description Scope of an API key: wallet:read.
         */
        get: operations["listWalletEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/wallet/faucet": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Get test money from the embedded chain
         * @description Pays test USDC, and the native coin that an approval costs, to the workspace's wallet. 404 `faucet:notOffered` on an external chain and where the setting turns it off; 409 `faucet:dailyMax` with `remainingMicroUsdc` beyond the maximum of a UTC day.
         *
         *     Scope of an API key: sessions:create.
         */
        post: operations["useFaucet"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List endpoints
         * @description Scope of an API key: webhooks:write.
         */
        get: operations["listWebhooks"];
        put?: never;
        /**
         * Add an endpoint; its signing secret is shown once
         * @description At most 20 per workspace. Messages are signed as Standard Webhooks describes; see docs/guides.
         *
         *     Scope of an API key: webhooks:write.
         */
        post: operations["createWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read an endpoint
         * @description Scope of an API key: webhooks:write.
         */
        get: operations["getWebhook"];
        put?: never;
        post?: never;
        /**
         * Delete an endpoint; what waits for it is not sent
         * @description Scope of an API key: webhooks:write.
         */
        delete: operations["deleteWebhook"];
        options?: never;
        head?: never;
        /**
         * Change, disable or enable an endpoint
         * @description Scope of an API key: webhooks:write.
         */
        patch: operations["updateWebhook"];
        trace?: never;
    };
    "/api/v1/webhooks/{id}/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List deliveries of the last 30 days, newest first
         * @description Scope of an API key: webhooks:write.
         */
        get: operations["listWebhookDeliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}/deliveries/{eventId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a delivery with the body that is sent
         * @description Scope of an API key: webhooks:write.
         */
        get: operations["getWebhookDelivery"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}/deliveries/{eventId}/resend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send an event again now
         * @description Scope of an API key: webhooks:write.
         */
        post: operations["resendWebhookDelivery"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}/ping": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a test event, `webhook.ping`
         * @description Scope of an API key: webhooks:write.
         */
        post: operations["pingWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send the workspace's events since an instant again
         * @description Up to 10,000 events of the endpoint's types, delivered ones included, oldest first.
         *
         *     Scope of an API key: webhooks:write.
         */
        post: operations["replayWebhookEvents"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/webhooks/{id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a new signing secret
         * @description For 24 hours messages are signed with the new and the previous secret.
         *
         *     Scope of an API key: webhooks:write.
         */
        post: operations["rotateWebhookSecret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the workspaces of the wallet */
        get: operations["listWorkspaces"];
        put?: never;
        /** Create a workspace; the signing wallet becomes its OWNER */
        post: operations["createWorkspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the caller's workspace
         * @description Scope of an API key: sessions:read.
         */
        get: operations["getWorkspace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /** Change name, availability, coverage or device */
        patch: operations["updateWorkspace"];
        trace?: never;
    };
    "/api/v1/workspaces/{id}/api-keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List keys, revoked ones too */
        get: operations["listApiKeys"];
        put?: never;
        /** Mint a key; its plaintext is shown once */
        post: operations["mintApiKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/api-keys/{keyId}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Revoke a key; it works for 60 more seconds */
        post: operations["revokeApiKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The caller's workspace, its sessions and open requests, now and on every change
         * @description `session` is a session that the workspace requested, `assignment` one that it operates. `request` is an open request within the coverage of an operator; `requestClosed` says that it can no longer be accepted. Otherwise like a session's stream.
         *
         *     Scope of an API key: sessions:read.
         */
        get: operations["watchWorkspace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/location": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Operator heartbeat, about every 2 seconds
         * @description The answer is given only once the heartbeat is durable. sequence must be greater than the last accepted one, and at most 2^31 above it.
         *
         *     Scope of an API key: sessions:operate.
         */
        post: operations["postLocation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/location/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let the device start its sequence again
         * @description The next heartbeat may have any sequence. Recorded heartbeats stay. For OWNERs only.
         */
        post: operations["resetLocation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/locations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Several heartbeats at once, oldest first
         * @description Scope of an API key: sessions:operate.
         */
        post: operations["postLocations"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/members": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List members */
        get: operations["listMembers"];
        put?: never;
        /** Make a wallet a member, or give it another role */
        post: operations["addMember"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/{id}/members/{walletAddress}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Take a member away; takes effect at its next selection of a workspace */
        delete: operations["removeMember"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workspaces/challenge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a text to create a workspace with */
        post: operations["challengeWorkspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AcceptSessionBody
         * @description Claim a session for the caller's own workspace.
         */
        AcceptSessionBody: {
            /**
             * Operator workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            operatorWorkspaceId: string;
        };
        /**
         * AddMemberBody
         * @description A wallet and its role.
         */
        AddMemberBody: {
            /**
             * Role
             * @enum {string}
             */
            role: "OWNER" | "ADMIN" | "VIEWER";
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /**
         * ApiKey
         * @description What is known of a key; never the key.
         */
        ApiKey: {
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * Created by wallet
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            createdByWallet: string;
            /**
             * Environment
             * @enum {string}
             */
            environment: "TEST" | "LIVE";
            /**
             * Grace period end
             * @description Until when a revoked key goes on working
             */
            gracePeriodEnd: string | null;
            /**
             * Key id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            keyId: string;
            /** Label */
            label: string;
            /** Last used at */
            lastUsedAt: string | null;
            /** Limits */
            limits: components["schemas"]["ApiKeyLimits"] | null;
            /**
             * Prefix
             * @description The public head of the key
             */
            prefix: string;
            /** Revoked at */
            revokedAt: string | null;
            /** Scopes */
            scopes: ("sessions:read" | "sessions:create" | "sessions:operate" | "pricing:read" | "wallet:read" | "operators:write" | "coverage:write" | "webhooks:write")[];
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * ApiKeyLimits
         * @description What the sessions that a key creates may cost at most; null: no limit.
         */
        ApiKeyLimits: {
            /** Per day micro usdc */
            perDayMicroUsdc: string | null;
            /** Per session micro usdc */
            perSessionMicroUsdc: string | null;
        };
        /**
         * ApiKeyList
         * @description The workspace's keys, revoked ones too, newest first.
         */
        ApiKeyList: {
            /** Items */
            items: components["schemas"]["ApiKey"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * AssignedSession
         * @description The answer of dispatch and accept.
         */
        AssignedSession: {
            /** Assigned at */
            assignedAt: string | null;
            /** Authorized */
            authorized: boolean;
            /**
             * Charged micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            chargedMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Consistency token
             * @description Opaque; may be sent back as x-svc-consistency-token
             */
            consistencyToken: string;
            /**
             * Consumer workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            consumerWorkspaceId: string;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Ended at */
            endedAt: string | null;
            /** End reason */
            endReason: ("CONSUMER_ENDED" | "OPERATOR_ENDED" | "MAX_DURATION" | "LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST" | "FUNDS_LOST" | "CONSUMER_LOST" | "CONSUMER_CANCELLED" | "OPERATOR_CANCELLED" | "WAIT_TIMEOUT" | "START_TIMEOUT" | "PLATFORM_ENDED") | null;
            /**
             * Expires at
             * @description The current deadline
             */
            expiresAt: string | null;
            /**
             * Hold micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            holdMicroUsdc: string;
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Instructions */
            instructions: string | null;
            /** Max duration seconds */
            maxDurationSeconds: number;
            /**
             * Metadata
             * @description For the consumer only
             */
            metadata: {
                [key: string]: unknown;
            } | null;
            /** Meter state */
            meterState: ("RUNNING" | "PAUSED" | "STOPPED") | null;
            /** Operator workspace id */
            operatorWorkspaceId: string | null;
            /** Pause reason */
            pauseReason: ("LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST") | null;
            /** Platform fee bps */
            platformFeeBps: number;
            /** Quote id */
            quoteId: string | null;
            /** Radius meters */
            radiusMeters: number;
            /**
             * Rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecondMicroUsdc: string;
            /** Requested lat */
            requestedLat: number;
            /** Requested lng */
            requestedLng: number;
            /** Settlement tx hash */
            settlementTxHash: string | null;
            /** Started at */
            startedAt: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "REQUESTED" | "ASSIGNED" | "LIVE" | "ENDED" | "CANCELLED" | "EXPIRED";
            /** Video backend ref */
            videoBackendRef: string | null;
            /** Wait timeout seconds */
            waitTimeoutSeconds: number;
            /**
             * Whep url
             * @description While LIVE, for both parties
             */
            whepUrl: string | null;
            /**
             * Whip url
             * @description While LIVE, for the operator: sessions:operate, OWNER or ADMIN. Secret
             */
            whipUrl: string | null;
        };
        /**
         * BoundWorkspace
         * @description The workspace that a key is bound to.
         */
        BoundWorkspace: {
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Name */
            name: string;
            /** Roles */
            roles: ("CONSUMER" | "SUPPLIER")[];
            /** Slug */
            slug: string;
        };
        /**
         * CancelledAssignments
         * @description What a bulk cancel did.
         */
        CancelledAssignments: {
            /**
             * Cancelled
             * @description Oldest first
             */
            cancelled: string[];
            /** Count */
            count: number;
        };
        /**
         * ChainConfig
         * @description What a client needs to drive a wallet.
         */
        ChainConfig: {
            /** Chain id */
            chainId: number;
            /** Chain name */
            chainName: string;
            /**
             * Environment
             * @constant
             */
            environment: "TEST";
            /** Explorer url */
            explorerUrl: string;
            /** Rpc url */
            rpcUrl: string;
            /**
             * Settlement address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            settlementAddress: string;
            /**
             * Usdc address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            usdcAddress: string;
        };
        /**
         * Challenge
         * @description What to sign: an EIP-4361 text, good once and for five minutes.
         */
        Challenge: {
            /**
             * Expires at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            expiresAt: string;
            /** Message */
            message: string;
            /** Nonce */
            nonce: string;
        };
        /**
         * ChallengeBody
         * @description The wallet that will sign.
         */
        ChallengeBody: {
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /**
         * Coverage
         * @description Where operators are online, by the cell that contains the centre of their coverage.
         */
        Coverage: {
            /**
             * Cell degrees
             * @description Width and height of a cell
             */
            cellDegrees: number;
            /**
             * Everywhere
             * @description Operators online that set no coverage and count as covering every place
             */
            everywhere: number;
            /** Items */
            items: components["schemas"]["CoverageCell"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * CoverageCell
         * @description A cell with operators in it.
         */
        CoverageCell: {
            /** Operators */
            operators: number;
            /** South */
            south: number;
            /** West */
            west: number;
        };
        /**
         * CreateSessionBody
         * @description Ask for live video of a place.
         */
        CreateSessionBody: {
            /**
             * Consumer lease seconds
             * @description End the LIVE session (CONSUMER_LOST) when the consumer has not read it, its frames or its events, and nobody has watched it by WHEP, for this many seconds
             */
            consumerLeaseSeconds?: number | null;
            /**
             * Instructions
             * @description Shown to the operator
             * @example North gate, look at the queue
             */
            instructions?: string | null;
            /**
             * Lat
             * @example 52.520008
             */
            lat: number;
            /**
             * Lng
             * @example 13.404954
             */
            lng: number;
            /**
             * Max duration seconds
             * @description Default: 600
             */
            maxDurationSeconds?: number;
            /**
             * Metadata
             * @description At most 2 KB of JSON, echoed to the consumer
             * @example {
             *       "order": "A-17"
             *     }
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * Quote id
             * @description A quote of the caller's own; locks its rate
             */
            quoteId?: string | null;
            /**
             * Radius meters
             * @description Radius of the session's geofence. Default: 500
             */
            radiusMeters?: number;
            /**
             * Wait timeout seconds
             * @description Default: 300
             */
            waitTimeoutSeconds?: number;
            /**
             * Workspace id
             * @description If given, the caller's own workspace
             */
            workspaceId?: string | null;
        };
        /**
         * CreateWebhookBody
         * @description A new endpoint.
         */
        CreateWebhookBody: {
            /**
             * Description
             * @description Default:
             */
            description?: string;
            /**
             * Event types
             * @description Empty: every type
             * @example [
             *       "session.live",
             *       "session.ended"
             *     ]
             */
            eventTypes?: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability")[];
            /**
             * Url
             * @description https; must not resolve to a private address
             * @example https://example.com/sightline
             */
            url: string;
        };
        /**
         * CreateWorkspaceBody
         * @description A workspace, proved by the signature of the wallet that will own it.
         */
        CreateWorkspaceBody: {
            /**
             * Name
             * @example Harbour Cams
             */
            name: string;
            /**
             * Nonce
             * @description Of POST /workspaces/challenge
             */
            nonce: string;
            /**
             * Roles
             * @example [
             *       "CONSUMER"
             *     ]
             */
            roles: ("CONSUMER" | "SUPPLIER")[];
            /**
             * Signature
             * @description Hex, over the challenge's message
             * @example 0x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
             */
            signature: string;
            /**
             * Slug
             * @example harbour-cams
             */
            slug: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /** Error */
        Error: {
            /** @enum {string} */
            code: "INVALID_INPUT" | "NOT_AUTHENTICATED" | "REVOKED_API_KEY" | "INSUFFICIENT_CREDIT" | "NOT_AUTHORIZED" | "NOT_OPERATOR" | "NOT_FOUND" | "SESSION_NOT_FOUND" | "FRAME_NOT_AVAILABLE" | "INVALID_STATE" | "CONFLICT" | "RATE_LIMITED" | "INTERNAL_ERROR" | "AUTHZ_ERROR" | "VIDEO_ERROR" | "UNAVAILABLE" | "OUTCOME_UNKNOWN";
            /**
             * @description Where it failed, as area:label
             * @example session:duration
             */
            detail?: string;
            /** @description The last accepted heartbeat sequence */
            lastSequence?: number;
            message: string;
            /** @description What is left of the limit that the call would pass */
            remainingMicroUsdc?: string;
            /** @description The scope that the API key lacks */
            requiredScope?: string;
            /**
             * @description The present state, with INVALID_STATE
             * @example ENDED
             */
            state?: string;
            statusCode: number;
            /**
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            timestamp: string;
        };
        /**
         * EventFact
         * @description One named value of an event. The order of the facts of an event is part of its hash.
         */
        EventFact: {
            /** Name */
            name: string;
            /** Value */
            value: string | number | null;
        };
        /**
         * FaucetBody
         * @description How much test money.
         */
        FaucetBody: {
            /**
             * Amount micro usdc
             * @description At least 1 micro-USDC. Default: 10000000
             * @example 1000
             */
            amountMicroUsdc?: string;
        };
        /**
         * FaucetPayment
         * @description Test money that was paid.
         */
        FaucetPayment: {
            /**
             * Amount micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            amountMicroUsdc: string;
            /**
             * Remaining micro usdc
             * @description What the wallet may still get on this UTC day
             * @example 1000
             */
            remainingMicroUsdc: string;
            /**
             * Tx hash
             * @description The mined transaction
             */
            txHash: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /**
         * Health
         * @description Alive.
         */
        Health: {
            /** Build sha */
            buildSha: string;
            /** Ok */
            ok: boolean;
            /**
             * Surface
             * @constant
             */
            surface: "public";
            /**
             * Version
             * @constant
             */
            version: "v1";
        };
        /**
         * HeartbeatBody
         * @description Where the device is. `sequence` must be greater than the last accepted one; gaps are fine.
         */
        HeartbeatBody: {
            /**
             * Accuracy meters
             * @description Default 50
             */
            accuracyMeters?: number | null;
            /** Altitude meters */
            altitudeMeters?: number | null;
            /** Battery percent */
            batteryPercent?: number | null;
            /**
             * Captured at
             * @description The device's own time of the fix
             */
            capturedAt?: string | null;
            /** Heading degrees */
            headingDegrees?: number | null;
            /** Is mock */
            isMock?: boolean | null;
            /**
             * Lat
             * @example 52.520008
             */
            lat: number;
            /**
             * Lng
             * @example 13.404954
             */
            lng: number;
            /**
             * Sequence
             * @example 17
             */
            sequence: number | string;
            /**
             * Session id
             * @description If given, the LIVE session it is meant for
             */
            sessionId?: string | null;
            /** Source */
            source?: ("GPS" | "FUSED" | "NETWORK" | "MANUAL") | null;
            /** Speed mps */
            speedMps?: number | null;
        };
        /**
         * HeartbeatsBody
         * @description Several heartbeats, oldest first, as a device sends them that was out of reach.
         */
        HeartbeatsBody: {
            /** Items */
            items: components["schemas"]["HeartbeatBody"][];
        };
        /**
         * HeartbeatVerdict
         * @description What became of one heartbeat of a batch. All but the first two only where `ok` is false.
         */
        HeartbeatVerdict: {
            /** Code */
            code?: string | null;
            /** Detail */
            detail?: string | null;
            /**
             * Last sequence
             * @description The last accepted sequence, where this one is lower
             */
            lastSequence?: number | null;
            /** Message */
            message?: string | null;
            /** Ok */
            ok: boolean;
            /** Sequence */
            sequence: number;
        };
        /**
         * HeartbeatVerdicts
         * @description What became of a batch; those that are ok are durable.
         */
        HeartbeatVerdicts: {
            /** Items */
            items: components["schemas"]["HeartbeatVerdict"][];
            workspace: components["schemas"]["Workspace"];
        };
        /**
         * Identity
         * @description Who is calling.
         */
        Identity: components["schemas"]["KeyIdentity"] | components["schemas"]["WalletIdentity"];
        /**
         * KeyIdentity
         * @description An API key's identity.
         */
        KeyIdentity: {
            /**
             * Environment
             * @enum {string}
             */
            environment: "TEST" | "LIVE";
            /**
             * Key id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            keyId: string;
            /**
             * Kind
             * @constant
             */
            kind: "api_key";
            /** Scopes */
            scopes: ("sessions:read" | "sessions:create" | "sessions:operate" | "pricing:read" | "wallet:read" | "operators:write" | "coverage:write" | "webhooks:write")[];
            /** Workspace */
            workspace: components["schemas"]["BoundWorkspace"];
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * KeyLimitsBody
         * @description What the sessions that the key creates may cost at most. At least one limit.
         */
        KeyLimitsBody: {
            /**
             * Per day micro usdc
             * @description Sum over the sessions created on one UTC day: holds of open sessions, charges of ended ones
             */
            perDayMicroUsdc?: string | null;
            /**
             * Per session micro usdc
             * @description Largest hold of one session
             */
            perSessionMicroUsdc?: string | null;
        };
        /**
         * LoginBody
         * @description The signed challenge.
         */
        LoginBody: {
            /** Nonce */
            nonce: string;
            /**
             * Signature
             * @description Hex
             * @example 0x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
             */
            signature: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /**
         * Member
         * @description A wallet's role in a workspace.
         */
        Member: {
            /**
             * Role
             * @enum {string}
             */
            role: "OWNER" | "ADMIN" | "VIEWER";
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * MemberList
         * @description Members, owners first.
         */
        MemberList: {
            /** Items */
            items: components["schemas"]["Member"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * Meter
         * @description The meter and its evidence.
         */
        Meter: {
            /**
             * Charged micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            chargedMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /** Ended at */
            endedAt: string | null;
            /**
             * Ended head hash
             * @description The head hash at the end; a settlement changes headHash later
             */
            endedHeadHash: string | null;
            /**
             * Head hash
             * @description SHA-256 chain over the session's recorded events
             */
            headHash: string;
            /** Meter state */
            meterState: ("RUNNING" | "PAUSED" | "STOPPED") | null;
            /**
             * Rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecondMicroUsdc: string;
            /**
             * Session id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            sessionId: string;
            /** Started at */
            startedAt: string | null;
            /** Windows */
            windows: components["schemas"]["MeterWindow"][];
        };
        /**
         * MeterEvent
         * @description A recorded event of a session.
         */
        MeterEvent: {
            /**
             * At ms
             * @description Epoch milliseconds
             */
            atMs: number;
            /** Facts */
            facts: components["schemas"]["EventFact"][];
            /**
             * Hash
             * @description SHA-256 in hex over the previous hash and this event; see the API page, section Verify a receipt
             */
            hash: string;
            /**
             * Kind
             * @enum {string}
             */
            kind: "CREATED" | "ASSIGNED" | "REOPENED" | "STARTED" | "PAUSED" | "RESUMED" | "MEDIA_LOST" | "ENDED" | "CANCELLED" | "EXPIRED" | "SETTLED";
            /**
             * Sequence
             * @description Counts from 1 without gaps
             */
            sequence: number;
        };
        /**
         * MeterEventPage
         * @description A page of recorded events, oldest first.
         */
        MeterEventPage: {
            /**
             * Ended head hash
             * @description Hash of the event ENDED; null before it
             */
            endedHeadHash: string | null;
            /**
             * Head hash
             * @description Hash of the newest event of the session, which may be on a later page
             */
            headHash: string;
            /** Items */
            items: components["schemas"]["MeterEvent"][];
            /** Next cursor */
            nextCursor: string | null;
        };
        /**
         * MeterWindow
         * @description A stretch of time that is not charged.
         */
        MeterWindow: {
            /**
             * From
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            from: string;
            /**
             * Reason
             * @enum {string}
             */
            reason: "LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST";
            /** To */
            to: string | null;
        };
        /**
         * MintedKey
         * @description A fresh key, shown once.
         */
        MintedKey: {
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * Created by wallet
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            createdByWallet: string;
            /**
             * Environment
             * @enum {string}
             */
            environment: "TEST" | "LIVE";
            /**
             * Grace period end
             * @description Until when a revoked key goes on working
             */
            gracePeriodEnd: string | null;
            /**
             * Key id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            keyId: string;
            /** Label */
            label: string;
            /** Last used at */
            lastUsedAt: string | null;
            /** Limits */
            limits: components["schemas"]["ApiKeyLimits"] | null;
            /**
             * Plaintext
             * @description The key itself. It cannot be recovered later
             */
            plaintext: string;
            /**
             * Prefix
             * @description The public head of the key
             */
            prefix: string;
            /** Revoked at */
            revokedAt: string | null;
            /** Scopes */
            scopes: ("sessions:read" | "sessions:create" | "sessions:operate" | "pricing:read" | "wallet:read" | "operators:write" | "coverage:write" | "webhooks:write")[];
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * MintKeyBody
         * @description A new API key.
         */
        MintKeyBody: {
            /**
             * Environment
             * @description LIVE is refused until there is a production chain
             * @constant
             */
            environment: "TEST";
            /**
             * Label
             * @example Harbour Cams
             */
            label: string;
            /**
             * Limits
             * @description Left out: the key may spend what the wallet has
             */
            limits?: components["schemas"]["KeyLimitsBody"] | null;
            /**
             * Scopes
             * @example [
             *       "sessions:read",
             *       "sessions:create",
             *       "pricing:read",
             *       "wallet:read"
             *     ]
             */
            scopes: ("sessions:read" | "sessions:create" | "sessions:operate" | "pricing:read" | "wallet:read" | "operators:write" | "coverage:write" | "webhooks:write")[];
        };
        /**
         * PatchWebhookBody
         * @description What to change; at least one field.
         */
        PatchWebhookBody: {
            description?: string;
            /** @description true also ends a failure of the endpoint */
            enabled?: boolean;
            /**
             * @description Empty: every type
             * @example [
             *       "session.live",
             *       "session.ended"
             *     ]
             */
            eventTypes?: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability")[];
            /** @example https://example.com/sightline */
            url?: string;
        };
        /**
         * PatchWorkspaceBody
         * @description What to change; at least one field. All but the name need the SUPPLIER role.
         */
        PatchWorkspaceBody: {
            /** @enum {string} */
            availabilityState?: "ONLINE" | "OFFLINE";
            /**
             * @description Together with coverageLng
             * @example 52.520008
             */
            coverageLat?: number;
            /**
             * @description Together with coverageLat
             * @example 13.404954
             */
            coverageLng?: number;
            coverageRadiusMeters?: number;
            /** @enum {string} */
            deviceKind?: "PHONE" | "LAPTOP" | "DRONE" | "PTZ" | "FIXED" | "OTHER";
            /** @example Harbour Cams */
            name?: string;
        };
        /**
         * Quote
         * @description A price that a session can be created with, once, within two minutes.
         */
        Quote: {
            /**
             * Available operators
             * @description ONLINE operators that cover the point
             */
            availableOperators: number;
            /**
             * Base rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            baseRatePerSecondMicroUsdc: string;
            /** Corridor multiplier */
            corridorMultiplier: number;
            /** Demand factor */
            demandFactor: number;
            /** Duration seconds */
            durationSeconds: number;
            /**
             * Estimated total micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            estimatedTotalMicroUsdc: string;
            /**
             * Expires at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            expiresAt: string;
            /** Lat */
            lat: number;
            /** Lng */
            lng: number;
            /**
             * Quote id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            quoteId: string;
            /**
             * Rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecondMicroUsdc: string;
            /** Supply factor */
            supplyFactor: number;
        };
        /**
         * Receipt
         * @description Everything that is needed to recompute the charge of a session.
         */
        Receipt: {
            /** Contracts */
            contracts: components["schemas"]["ReceiptContracts"];
            /** Events */
            events: components["schemas"]["MeterEvent"][];
            /** Meter */
            meter: components["schemas"]["ReceiptMeter"];
            /** Session */
            session: components["schemas"]["ReceiptSession"];
            /** Settlement */
            settlement: components["schemas"]["ReceiptSettlement"];
        };
        /**
         * ReceiptContracts
         * @description Where to look up the settlement.
         */
        ReceiptContracts: {
            /** Chain id */
            chainId: number;
            /**
             * Settlement address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            settlementAddress: string;
            /**
             * Usdc address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            usdcAddress: string;
        };
        /**
         * ReceiptMeter
         * @description The meter at the end of a session.
         */
        ReceiptMeter: {
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Ended at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            endedAt: string;
            /**
             * Ended head hash
             * @description Hash of the event ENDED; null if the session never was LIVE
             */
            endedHeadHash: string | null;
            /** Head hash */
            headHash: string;
            /** Started at */
            startedAt: string | null;
            /** Windows */
            windows: components["schemas"]["MeterWindow"][];
        };
        /**
         * ReceiptSession
         * @description The terms and the outcome of a session.
         */
        ReceiptSession: {
            /** Assigned at */
            assignedAt: string | null;
            /**
             * Charged micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            chargedMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Consumer workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            consumerWorkspaceId: string;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * Ended at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            endedAt: string;
            /**
             * End reason
             * @enum {string}
             */
            endReason: "CONSUMER_ENDED" | "OPERATOR_ENDED" | "MAX_DURATION" | "LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST" | "FUNDS_LOST" | "CONSUMER_LOST" | "CONSUMER_CANCELLED" | "OPERATOR_CANCELLED" | "WAIT_TIMEOUT" | "START_TIMEOUT" | "PLATFORM_ENDED";
            /**
             * Hold micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            holdMicroUsdc: string;
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Max duration seconds */
            maxDurationSeconds: number;
            /** Operator workspace id */
            operatorWorkspaceId: string | null;
            /** Platform fee bps */
            platformFeeBps: number;
            /** Radius meters */
            radiusMeters: number;
            /**
             * Rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecondMicroUsdc: string;
            /** Requested lat */
            requestedLat: number;
            /** Requested lng */
            requestedLng: number;
            /** Settlement tx hash */
            settlementTxHash: string | null;
            /** Started at */
            startedAt: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "ENDED" | "CANCELLED" | "EXPIRED";
        };
        /**
         * ReceiptSettlement
         * @description The settlement of a session and its place on the chain.
         */
        ReceiptSettlement: {
            /** Block number */
            blockNumber: string | null;
            /**
             * Log index
             * @description Index of the event Settled in its block
             */
            logIndex: number | null;
            /** Payload */
            payload: components["schemas"]["SettlementPayload"] | null;
            /**
             * State
             * @enum {string}
             */
            state: "NOT_READY" | "PENDING" | "CONFIRMED";
            /** Tx hash */
            txHash: string | null;
        };
        /**
         * Replay
         * @description What a replay queued.
         */
        Replay: {
            /** Count */
            count: number;
            /**
             * Next since
             * @description Set when there are more events: replay again from here
             */
            nextSince: string | null;
        };
        /**
         * ReplayBody
         * @description Which events to send again.
         */
        ReplayBody: {
            /**
             * Since
             * Format: date-time
             * @description Events that happened at or after this instant; they are kept for 30 days
             * @example 2026-11-20T12:00:00.000Z
             */
            since: string;
        };
        /**
         * RequestClosed
         * @description A request that was announced and can no longer be accepted.
         */
        RequestClosed: {
            /**
             * Session id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            sessionId: string;
        };
        /**
         * SelectBody
         * @description The workspace to act for.
         */
        SelectBody: {
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * Selected
         * @description The selected workspace, and what the wallet is in it.
         */
        Selected: {
            /**
             * Role
             * @enum {string}
             */
            role: "OWNER" | "ADMIN" | "VIEWER";
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * Session
         * @description A session as the caller may see it.
         */
        Session: {
            /** Assigned at */
            assignedAt: string | null;
            /** Authorized */
            authorized: boolean;
            /**
             * Charged micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            chargedMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Consumer workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            consumerWorkspaceId: string;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Ended at */
            endedAt: string | null;
            /** End reason */
            endReason: ("CONSUMER_ENDED" | "OPERATOR_ENDED" | "MAX_DURATION" | "LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST" | "FUNDS_LOST" | "CONSUMER_LOST" | "CONSUMER_CANCELLED" | "OPERATOR_CANCELLED" | "WAIT_TIMEOUT" | "START_TIMEOUT" | "PLATFORM_ENDED") | null;
            /**
             * Expires at
             * @description The current deadline
             */
            expiresAt: string | null;
            /**
             * Hold micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            holdMicroUsdc: string;
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Instructions */
            instructions: string | null;
            /** Max duration seconds */
            maxDurationSeconds: number;
            /**
             * Metadata
             * @description For the consumer only
             */
            metadata: {
                [key: string]: unknown;
            } | null;
            /** Meter state */
            meterState: ("RUNNING" | "PAUSED" | "STOPPED") | null;
            /** Operator workspace id */
            operatorWorkspaceId: string | null;
            /** Pause reason */
            pauseReason: ("LOCATION_STALE" | "GEOFENCE_EXIT" | "MEDIA_LOST") | null;
            /** Platform fee bps */
            platformFeeBps: number;
            /** Quote id */
            quoteId: string | null;
            /** Radius meters */
            radiusMeters: number;
            /**
             * Rate per second micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecondMicroUsdc: string;
            /** Requested lat */
            requestedLat: number;
            /** Requested lng */
            requestedLng: number;
            /** Settlement tx hash */
            settlementTxHash: string | null;
            /** Started at */
            startedAt: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "REQUESTED" | "ASSIGNED" | "LIVE" | "ENDED" | "CANCELLED" | "EXPIRED";
            /** Video backend ref */
            videoBackendRef: string | null;
            /** Wait timeout seconds */
            waitTimeoutSeconds: number;
            /**
             * Whep url
             * @description While LIVE, for both parties
             */
            whepUrl: string | null;
            /**
             * Whip url
             * @description While LIVE, for the operator: sessions:operate, OWNER or ADMIN. Secret
             */
            whipUrl: string | null;
        };
        /**
         * SessionLocation
         * @description The last plausible position of the operator's device in a LIVE session.
         */
        SessionLocation: {
            /** Accuracy meters */
            accuracyMeters: number;
            /**
             * Captured at
             * Format: date-time
             * @description By the device's clock; the time of receipt if the device sent none
             * @example 2026-11-20T12:00:00.000Z
             */
            capturedAt: string;
            /**
             * In geofence
             * @description null while the position proves neither
             */
            inGeofence: boolean | null;
            /** Lat */
            lat: number;
            /** Lng */
            lng: number;
            /**
             * Received at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            receivedAt: string;
            /**
             * Session id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            sessionId: string;
        };
        /**
         * SessionPage
         * @description A page of sessions.
         */
        SessionPage: {
            /** Items */
            items: components["schemas"]["Session"][];
            /** Next cursor */
            nextCursor: string | null;
        };
        /**
         * Settlement
         * @description How far the settlement of a session is.
         */
        Settlement: {
            /** Confirmed at */
            confirmedAt: string | null;
            /** Payload */
            payload: components["schemas"]["SettlementPayload"] | null;
            /**
             * Session id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            sessionId: string;
            /**
             * State
             * @enum {string}
             */
            state: "NOT_READY" | "PENDING" | "CONFIRMED";
            /** Tx hash */
            txHash: string | null;
        };
        /**
         * SettlementPayload
         * @description What is settled on the chain.
         */
        SettlementPayload: {
            /** Chargeable seconds */
            chargeableSeconds: number;
            /**
             * Consumer workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            consumerWorkspaceId: string;
            /**
             * Fee amount
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            feeAmount: string;
            /**
             * From
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            from: string;
            /**
             * Operator workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            operatorWorkspaceId: string;
            /** Platform fee bps */
            platformFeeBps: number;
            /**
             * Rate per second
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            ratePerSecond: string;
            /**
             * Session id hash
             * @description keccak256 of the lower-case session id
             */
            sessionIdHash: string;
            /**
             * To
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            to: string;
            /**
             * To amount
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            toAmount: string;
        };
        /**
         * SignedIn
         * @description The wallet and the workspaces it can select. The session itself is the cookie svc_session.
         */
        SignedIn: {
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
            /** Workspaces */
            workspaces: components["schemas"]["WorkspaceBrief"][];
        };
        /**
         * SignedOut
         * @description An empty object.
         */
        SignedOut: Record<string, never>;
        /**
         * StartedSession
         * @description The answer of start: where to publish, where to play.
         */
        StartedSession: {
            session: components["schemas"]["Session"];
            /** Video backend ref */
            videoBackendRef: string;
            /** Whep url */
            whepUrl: string;
            /** Whip url */
            whipUrl: string;
        };
        /**
         * Usage
         * @description Usage by day, every day of the range, oldest first.
         */
        Usage: {
            /** Items */
            items: components["schemas"]["UsageBucket"][];
            /** Next cursor */
            nextCursor: null;
            /**
             * Side
             * @enum {string}
             */
            side: "consumer" | "operator";
            /** Total */
            total: components["schemas"]["UsageTotal"];
        };
        /**
         * UsageBucket
         * @description The sessions that ended on one day in UTC.
         */
        UsageBucket: {
            /**
             * Amount micro usdc
             * @description consumer: what was charged, fee included; operator: what was earned, fee deducted
             * @example 1000
             */
            amountMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Date
             * Format: date
             */
            date: string;
            /**
             * Platform fee micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            platformFeeMicroUsdc: string;
            /** Sessions */
            sessions: number;
        };
        /**
         * UsageTotal
         * @description Ended sessions and their money.
         */
        UsageTotal: {
            /**
             * Amount micro usdc
             * @description consumer: what was charged, fee included; operator: what was earned, fee deducted
             * @example 1000
             */
            amountMicroUsdc: string;
            /** Clean seconds */
            cleanSeconds: number;
            /**
             * Platform fee micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            platformFeeMicroUsdc: string;
            /** Sessions */
            sessions: number;
        };
        /**
         * ViewerToken
         * @description Where to play.
         */
        ViewerToken: {
            /** Video backend ref */
            videoBackendRef: string;
            /** Whep url */
            whepUrl: string;
        };
        /**
         * Wallet
         * @description What the watcher saw of the workspace's wallet; the chain is the authority.
         */
        Wallet: {
            /**
             * Available micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            availableMicroUsdc: string;
            /**
             * Held micro usdc
             * @description Reserved for open sessions
             * @example 1000
             */
            heldMicroUsdc: string;
            /** Last sync block */
            lastSyncBlock: string;
            /**
             * Tracked allowance
             * @description Allowance of the settlement contract
             * @example 1000
             */
            trackedAllowance: string;
            /**
             * Tracked balance
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            trackedBalance: string;
            /**
             * Updated at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            updatedAt: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * WalletEvent
         * @description One event on the chain as the workspace sees it.
         */
        WalletEvent: {
            /**
             * Amount micro usdc
             * @description Whole micro-USDC as decimal text
             * @example 1000
             */
            amountMicroUsdc: string;
            /** Block hash */
            blockHash: string;
            /** Block number */
            blockNumber: string;
            /** Confirmations */
            confirmations: number;
            /** Confirmed at */
            confirmedAt: string | null;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * From address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            fromAddress: string;
            /** Id */
            id: string;
            /**
             * Kind
             * @enum {string}
             */
            kind: "DEPOSIT" | "WITHDRAWAL" | "APPROVAL" | "SETTLEMENT" | "TRANSFER_IN" | "TRANSFER_OUT";
            /** Log index */
            logIndex: number;
            /**
             * Removed
             * @description True after a reorganisation of the chain
             */
            removed: boolean;
            /** Session id */
            sessionId: string | null;
            /**
             * To address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            toAddress: string;
            /** Tx hash */
            txHash: string;
            /**
             * Workspace id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            workspaceId: string;
        };
        /**
         * WalletEventPage
         * @description A page of the ledger.
         */
        WalletEventPage: {
            /** Items */
            items: components["schemas"]["WalletEvent"][];
            /** Next cursor */
            nextCursor: string | null;
        };
        /**
         * WalletIdentity
         * @description A wallet session's identity. `workspaceId` and `role` are null until a workspace is selected.
         */
        WalletIdentity: {
            /**
             * Expires at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            expiresAt: string;
            /**
             * Kind
             * @constant
             */
            kind: "wallet_session";
            /** Role */
            role: ("OWNER" | "ADMIN" | "VIEWER") | null;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
            /** Workspace id */
            workspaceId: string | null;
            /** Workspaces */
            workspaces: components["schemas"]["WorkspaceBrief"][];
        };
        /**
         * WalletSession
         * @description A sign-in of the wallet. `clientAddress` and `userAgent` are those of the sign-in.
         */
        WalletSession: {
            /** Client address */
            clientAddress: string;
            /** Ended at */
            endedAt: string | null;
            /** Is current */
            isCurrent: boolean;
            /**
             * Last used at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            lastUsedAt: string;
            /**
             * Session id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            sessionId: string;
            /**
             * Signed in at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            signedInAt: string;
            /** User agent */
            userAgent: string;
        };
        /**
         * WalletSessionList
         * @description The open sign-ins of the wallet, newest first, on one page.
         */
        WalletSessionList: {
            /** Items */
            items: components["schemas"]["WalletSession"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * Webhook
         * @description An endpoint that events are sent to.
         */
        Webhook: {
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Description */
            description: string;
            /** Disabled at */
            disabledAt: string | null;
            /**
             * Disabled reason
             * @description OWNER: by a call. GONE: it answered 410. FAILING: it failed for 5 days
             */
            disabledReason: ("OWNER" | "GONE" | "FAILING") | null;
            /** Enabled */
            enabled: boolean;
            /**
             * Event types
             * @description Empty: every type
             */
            eventTypes: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability")[];
            /**
             * Failing since
             * @description First failed attempt since the last delivered one
             */
            failingSince: string | null;
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /**
             * Previous secret expires at
             * @description Until then messages are also signed with the secret from before the last rotation
             */
            previousSecretExpiresAt: string | null;
            /** Url */
            url: string;
        };
        /**
         * WebhookDelivery
         * @description One event for one endpoint.
         */
        WebhookDelivery: {
            /** Attempts */
            attempts: number;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Delivered at */
            deliveredAt: string | null;
            /**
             * Event at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            eventAt: string;
            /**
             * Event id
             * Format: uuid
             * @description The header webhook-id of every attempt
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            eventId: string;
            /** Event type */
            eventType: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability") | "webhook.ping";
            /** Last attempt at */
            lastAttemptAt: string | null;
            /**
             * Last error
             * @description bad_status, redirect_refused, timeout, name_not_resolved, address_refused, connect_failed, tls_failed, connection_lost or internal_error
             */
            lastError: string | null;
            /**
             * Last status
             * @description HTTP status of the last attempt; null if there was no response
             */
            lastStatus: number | null;
            /**
             * Next attempt at
             * @description While PENDING
             */
            nextAttemptAt: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "PENDING" | "DELIVERED" | "FAILED";
        };
        /**
         * WebhookDeliveryPage
         * @description A page of deliveries.
         */
        WebhookDeliveryPage: {
            /** Items */
            items: components["schemas"]["WebhookDelivery"][];
            /** Next cursor */
            nextCursor: string | null;
        };
        /**
         * WebhookDeliveryWithBody
         * @description One event for one endpoint, with what is sent.
         */
        WebhookDeliveryWithBody: {
            /** Attempts */
            attempts: number;
            /**
             * Body
             * @description The exact text that is sent and signed
             */
            body: string;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Delivered at */
            deliveredAt: string | null;
            /**
             * Event at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            eventAt: string;
            /**
             * Event id
             * Format: uuid
             * @description The header webhook-id of every attempt
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            eventId: string;
            /** Event type */
            eventType: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability") | "webhook.ping";
            /** Last attempt at */
            lastAttemptAt: string | null;
            /**
             * Last error
             * @description bad_status, redirect_refused, timeout, name_not_resolved, address_refused, connect_failed, tls_failed, connection_lost or internal_error
             */
            lastError: string | null;
            /**
             * Last status
             * @description HTTP status of the last attempt; null if there was no response
             */
            lastStatus: number | null;
            /**
             * Next attempt at
             * @description While PENDING
             */
            nextAttemptAt: string | null;
            /**
             * State
             * @enum {string}
             */
            state: "PENDING" | "DELIVERED" | "FAILED";
        };
        /**
         * WebhookList
         * @description The workspace's endpoints, oldest first.
         */
        WebhookList: {
            /** Items */
            items: components["schemas"]["Webhook"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * WebhookWithSecret
         * @description An endpoint with its signing secret.
         */
        WebhookWithSecret: {
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /** Description */
            description: string;
            /** Disabled at */
            disabledAt: string | null;
            /**
             * Disabled reason
             * @description OWNER: by a call. GONE: it answered 410. FAILING: it failed for 5 days
             */
            disabledReason: ("OWNER" | "GONE" | "FAILING") | null;
            /** Enabled */
            enabled: boolean;
            /**
             * Event types
             * @description Empty: every type
             */
            eventTypes: ("session.requested" | "session.assigned" | "session.live" | "session.paused" | "session.resumed" | "session.ended" | "session.cancelled" | "session.expired" | "settlement.confirmed" | "wallet.deposit" | "workspace.availability")[];
            /**
             * Failing since
             * @description First failed attempt since the last delivered one
             */
            failingSince: string | null;
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /**
             * Previous secret expires at
             * @description Until then messages are also signed with the secret from before the last rotation
             */
            previousSecretExpiresAt: string | null;
            /**
             * Secret
             * @description Signing secret (Standard Webhooks). Shown only here
             */
            secret: string;
            /** Url */
            url: string;
        };
        /**
         * Workspace
         * @description A workspace.
         */
        Workspace: {
            /**
             * Availability state
             * @enum {string}
             */
            availabilityState: "ONLINE" | "OFFLINE" | "BUSY";
            /** Coverage lat */
            coverageLat: number | null;
            /** Coverage lng */
            coverageLng: number | null;
            /** Coverage radius meters */
            coverageRadiusMeters: number | null;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * Created by wallet
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            createdByWallet: string;
            /** Deleted at */
            deletedAt: string | null;
            /**
             * Device kind
             * @enum {string}
             */
            deviceKind: "PHONE" | "LAPTOP" | "DRONE" | "PTZ" | "FIXED" | "OTHER";
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Last seen at */
            lastSeenAt: string | null;
            /** Name */
            name: string;
            /** Roles */
            roles: ("CONSUMER" | "SUPPLIER")[];
            /** Slug */
            slug: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
        /**
         * WorkspaceBrief
         * @description A workspace as it is named elsewhere.
         */
        WorkspaceBrief: {
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Name */
            name: string;
            /**
             * Role
             * @enum {string}
             */
            role: "OWNER" | "ADMIN" | "VIEWER";
            /** Slug */
            slug: string;
        };
        /**
         * WorkspaceList
         * @description The workspaces of a wallet.
         */
        WorkspaceList: {
            /** Items */
            items: components["schemas"]["WorkspaceWithRole"][];
            /** Next cursor */
            nextCursor: null;
        };
        /**
         * WorkspaceWithRole
         * @description A workspace and what the wallet is in it.
         */
        WorkspaceWithRole: {
            /**
             * Availability state
             * @enum {string}
             */
            availabilityState: "ONLINE" | "OFFLINE" | "BUSY";
            /** Coverage lat */
            coverageLat: number | null;
            /** Coverage lng */
            coverageLng: number | null;
            /** Coverage radius meters */
            coverageRadiusMeters: number | null;
            /**
             * Created at
             * Format: date-time
             * @example 2026-11-20T12:00:00.000Z
             */
            createdAt: string;
            /**
             * Created by wallet
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            createdByWallet: string;
            /** Deleted at */
            deletedAt: string | null;
            /**
             * Device kind
             * @enum {string}
             */
            deviceKind: "PHONE" | "LAPTOP" | "DRONE" | "PTZ" | "FIXED" | "OTHER";
            /**
             * Id
             * Format: uuid
             * @example 3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44
             */
            id: string;
            /** Last seen at */
            lastSeenAt: string | null;
            /** Name */
            name: string;
            /**
             * Role
             * @enum {string}
             */
            role: "OWNER" | "ADMIN" | "VIEWER";
            /** Roles */
            roles: ("CONSUMER" | "SUPPLIER")[];
            /** Slug */
            slug: string;
            /**
             * Wallet address
             * @example 0x52908400098527886E0F7030069857D2E4169EE7
             */
            walletAddress: string;
        };
    };
    responses: {
        /** @description Any other error */
        Error: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Error"];
            };
        };
        /** @description INVALID_INPUT: Invalid request payload */
        Error400_INVALID_INPUT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 400,
                 *       "code": "INVALID_INPUT",
                 *       "message": "Invalid request payload",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INVALID_INPUT";
                    /** @constant */
                    statusCode?: 400;
                };
            };
        };
        /** @description NOT_AUTHENTICATED: Session expired or missing */
        Error401_NOT_AUTHENTICATED: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 401,
                 *       "code": "NOT_AUTHENTICATED",
                 *       "message": "Session expired or missing",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "NOT_AUTHENTICATED";
                    /** @constant */
                    statusCode?: 401;
                };
            };
        };
        /** @description NOT_AUTHENTICATED: Session expired or missing; REVOKED_API_KEY: API key has been revoked */
        Error401_NOT_AUTHENTICATED_REVOKED_API_KEY: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 401,
                 *       "code": "NOT_AUTHENTICATED",
                 *       "message": "Session expired or missing",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "NOT_AUTHENTICATED" | "REVOKED_API_KEY";
                    /** @constant */
                    statusCode?: 401;
                };
            };
        };
        /** @description INSUFFICIENT_CREDIT: Insufficient credit */
        Error402_INSUFFICIENT_CREDIT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 402,
                 *       "code": "INSUFFICIENT_CREDIT",
                 *       "message": "Insufficient credit",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INSUFFICIENT_CREDIT";
                    /** @constant */
                    statusCode?: 402;
                };
            };
        };
        /** @description NOT_AUTHORIZED: Not authorized for this operation */
        Error403_NOT_AUTHORIZED: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 403,
                 *       "code": "NOT_AUTHORIZED",
                 *       "message": "Not authorized for this operation",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "NOT_AUTHORIZED";
                    /** @constant */
                    statusCode?: 403;
                };
            };
        };
        /** @description NOT_AUTHORIZED: Not authorized for this operation; NOT_OPERATOR: Caller is not an operator */
        Error403_NOT_AUTHORIZED_NOT_OPERATOR: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 403,
                 *       "code": "NOT_AUTHORIZED",
                 *       "message": "Not authorized for this operation",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "NOT_AUTHORIZED" | "NOT_OPERATOR";
                    /** @constant */
                    statusCode?: 403;
                };
            };
        };
        /** @description NOT_FOUND: Resource not found */
        Error404_NOT_FOUND: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 404,
                 *       "code": "NOT_FOUND",
                 *       "message": "Resource not found",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "NOT_FOUND";
                    /** @constant */
                    statusCode?: 404;
                };
            };
        };
        /** @description SESSION_NOT_FOUND: Session not found */
        Error404_SESSION_NOT_FOUND: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 404,
                 *       "code": "SESSION_NOT_FOUND",
                 *       "message": "Session not found",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "SESSION_NOT_FOUND";
                    /** @constant */
                    statusCode?: 404;
                };
            };
        };
        /** @description SESSION_NOT_FOUND: Session not found; FRAME_NOT_AVAILABLE: No frame is available yet */
        Error404_SESSION_NOT_FOUND_FRAME_NOT_AVAILABLE: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 404,
                 *       "code": "SESSION_NOT_FOUND",
                 *       "message": "Session not found",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "SESSION_NOT_FOUND" | "FRAME_NOT_AVAILABLE";
                    /** @constant */
                    statusCode?: 404;
                };
            };
        };
        /** @description CONFLICT: Conflicts with an existing resource */
        Error409_CONFLICT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 409,
                 *       "code": "CONFLICT",
                 *       "message": "Conflicts with an existing resource",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "CONFLICT";
                    /** @constant */
                    statusCode?: 409;
                };
            };
        };
        /** @description INVALID_STATE: Operation not allowed in the current state */
        Error409_INVALID_STATE: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 409,
                 *       "code": "INVALID_STATE",
                 *       "message": "Operation not allowed in the current state",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INVALID_STATE";
                    /** @constant */
                    statusCode?: 409;
                };
            };
        };
        /** @description INVALID_STATE: Operation not allowed in the current state; CONFLICT: Conflicts with an existing resource */
        Error409_INVALID_STATE_CONFLICT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 409,
                 *       "code": "INVALID_STATE",
                 *       "message": "Operation not allowed in the current state",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INVALID_STATE" | "CONFLICT";
                    /** @constant */
                    statusCode?: 409;
                };
            };
        };
        /** @description INVALID_INPUT: Invalid request payload */
        Error413_INVALID_INPUT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 413,
                 *       "code": "INVALID_INPUT",
                 *       "message": "Invalid request payload",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INVALID_INPUT";
                    /** @constant */
                    statusCode?: 413;
                };
            };
        };
        /** @description INVALID_INPUT: Invalid request payload */
        Error415_INVALID_INPUT: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 415,
                 *       "code": "INVALID_INPUT",
                 *       "message": "Invalid request payload",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INVALID_INPUT";
                    /** @constant */
                    statusCode?: 415;
                };
            };
        };
        /** @description RATE_LIMITED: Too many requests */
        Error429_RATE_LIMITED: {
            headers: {
                "retry-after": components["headers"]["RetryAfter"];
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 429,
                 *       "code": "RATE_LIMITED",
                 *       "message": "Too many requests",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "RATE_LIMITED";
                    /** @constant */
                    statusCode?: 429;
                };
            };
        };
        /** @description INTERNAL_ERROR: Internal error */
        Error500_INTERNAL_ERROR: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 500,
                 *       "code": "INTERNAL_ERROR",
                 *       "message": "Internal error",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "INTERNAL_ERROR";
                    /** @constant */
                    statusCode?: 500;
                };
            };
        };
        /** @description AUTHZ_ERROR: Authorization service unavailable; UNAVAILABLE: Service unavailable */
        Error503_AUTHZ_ERROR_UNAVAILABLE: {
            headers: {
                "retry-after": components["headers"]["RetryAfter"];
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 503,
                 *       "code": "AUTHZ_ERROR",
                 *       "message": "Authorization service unavailable",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "AUTHZ_ERROR" | "UNAVAILABLE";
                    /** @constant */
                    statusCode?: 503;
                };
            };
        };
        /** @description AUTHZ_ERROR: Authorization service unavailable; VIDEO_ERROR: Video service unavailable; UNAVAILABLE: Service unavailable */
        Error503_AUTHZ_ERROR_VIDEO_ERROR_UNAVAILABLE: {
            headers: {
                "retry-after": components["headers"]["RetryAfter"];
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 503,
                 *       "code": "AUTHZ_ERROR",
                 *       "message": "Authorization service unavailable",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "AUTHZ_ERROR" | "VIDEO_ERROR" | "UNAVAILABLE";
                    /** @constant */
                    statusCode?: 503;
                };
            };
        };
        /** @description UNAVAILABLE: Service unavailable */
        Error503_UNAVAILABLE: {
            headers: {
                "retry-after": components["headers"]["RetryAfter"];
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 503,
                 *       "code": "UNAVAILABLE",
                 *       "message": "Service unavailable",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "UNAVAILABLE";
                    /** @constant */
                    statusCode?: 503;
                };
            };
        };
        /** @description VIDEO_ERROR: Video service unavailable; UNAVAILABLE: Service unavailable */
        Error503_VIDEO_ERROR_UNAVAILABLE: {
            headers: {
                "retry-after": components["headers"]["RetryAfter"];
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 503,
                 *       "code": "VIDEO_ERROR",
                 *       "message": "Video service unavailable",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "VIDEO_ERROR" | "UNAVAILABLE";
                    /** @constant */
                    statusCode?: 503;
                };
            };
        };
        /** @description OUTCOME_UNKNOWN: The outcome is not known; repeat with the same Idempotency-Key */
        Error504_OUTCOME_UNKNOWN: {
            headers: {
                "x-request-id": components["headers"]["RequestId"];
                [name: string]: unknown;
            };
            content: {
                /**
                 * @example {
                 *       "statusCode": 504,
                 *       "code": "OUTCOME_UNKNOWN",
                 *       "message": "The outcome is not known; repeat with the same Idempotency-Key",
                 *       "timestamp": "2026-11-20T12:00:00.000Z"
                 *     }
                 */
                "application/json": components["schemas"]["Error"] & {
                    /** @enum {unknown} */
                    code?: "OUTCOME_UNKNOWN";
                    /** @constant */
                    statusCode?: 504;
                };
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: {
        /** @description The caller's own, or a new one. */
        RequestId: string;
        /** @description Seconds; the call had no effect. */
        RetryAfter: number;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getCertificates: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/pem-certificate-chain": string;
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    logout: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["SignedOut"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    challengeLogin: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChallengeBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Challenge"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    login: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoginBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["SignedIn"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    selectWorkspace: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SelectBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Selected"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getConfig: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["ChainConfig"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getCoverage: {
        parameters: {
            query: {
                bbox: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Coverage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Health"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getMe: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Identity"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    listWalletSessions: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WalletSessionList"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    endWalletSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WalletSession"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getQuote: {
        parameters: {
            query: {
                durationSeconds: number;
                lat: number;
                lng: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Quote"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    listSessions: {
        parameters: {
            query?: {
                createdAfter?: string;
                createdBefore?: string;
                cursor?: string;
                limit?: number;
                state?: ("REQUESTED" | "ASSIGNED" | "LIVE" | "ENDED" | "CANCELLED" | "EXPIRED")[];
                view?: "consumer" | "operator" | "open";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["SessionPage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED_NOT_OPERATOR"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    createSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateSessionBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Session"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            402: components["responses"]["Error402_INSUFFICIENT_CREDIT"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Session"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    cancelSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Session"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    acceptSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AcceptSessionBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["AssignedSession"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED_NOT_OPERATOR"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    dispatchSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["AssignedSession"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    endSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Session"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    watchSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": {
                        data: components["schemas"]["Session"];
                        /** @constant */
                        event: "session";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["Meter"];
                        /** @constant */
                        event: "meter";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["SessionLocation"];
                        /** @constant */
                        event: "location";
                        /** @description Counts the events of one stream */
                        id: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getFrame: {
        parameters: {
            query?: {
                after?: number;
                maxAgeMs?: number;
                quality?: number;
                signed?: boolean;
                waitMs?: number;
                width?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    /** @description The frame's sequence in quotes, with `s` at its end if it is signed */
                    etag?: string;
                    /** @description When the frame was captured, in whole seconds */
                    "last-modified"?: string;
                    "x-request-id": components["headers"]["RequestId"];
                    /** @description Age of the frame at the time of the answer */
                    "x-svc-frame-age-ms"?: number;
                    /** @description When the frame was captured */
                    "x-svc-frame-captured-at"?: string;
                    /** @description Pixels */
                    "x-svc-frame-height"?: number;
                    /** @description Counts the frames of a session; send it as `after` */
                    "x-svc-frame-sequence"?: number;
                    /** @description Whether the picture moves, is black, or is frozen */
                    "x-svc-frame-state"?: "live" | "black" | "frozen";
                    /** @description Pixels */
                    "x-svc-frame-width"?: number;
                    /** @description Whether the device is within the geofence */
                    "x-svc-in-geofence"?: "true" | "false" | "unknown";
                    /** @description `lat,lng;accuracy=metres;at=instant`, or `unknown` */
                    "x-svc-location"?: string;
                    /** @description State of the meter */
                    "x-svc-meter-state"?: "RUNNING" | "PAUSED" | "STOPPED";
                    [name: string]: unknown;
                };
                content: {
                    "image/jpeg": string;
                };
            };
            /** @description Nothing newer */
            304: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND_FRAME_NOT_AVAILABLE"];
            409: components["responses"]["Error409_INVALID_STATE"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_VIDEO_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    streamFrames: {
        parameters: {
            query?: {
                fps?: number;
                maxAgeMs?: number;
                quality?: number;
                signed?: boolean;
                width?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "multipart/x-mixed-replace": string;
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_VIDEO_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getMeter: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Meter"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    listMeterEvents: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["MeterEventPage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getReceipt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Receipt"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    startSession: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["StartedSession"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED_NOT_OPERATOR"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_VIDEO_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getViewerToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["ViewerToken"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_VIDEO_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    cancelAllAssignments: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["CancelledAssignments"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED_NOT_OPERATOR"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getSettlement: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                sessionId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Settlement"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_SESSION_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getUsage: {
        parameters: {
            query: {
                bucket?: "day";
                format?: "json" | "csv";
                from: string;
                side: "consumer" | "operator";
                to: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Usage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                    "text/csv": string;
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getWallet: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Wallet"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    listWalletEvents: {
        parameters: {
            query?: {
                cursor?: string;
                fromBlock?: number;
                kind?: ("DEPOSIT" | "WITHDRAWAL" | "APPROVAL" | "SETTLEMENT" | "TRANSFER_IN" | "TRANSFER_OUT")[];
                limit?: number;
                toBlock?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WalletEventPage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    useFaucet: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["FaucetBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["FaucetPayment"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    listWebhooks: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookList"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    createWebhook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateWebhookBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookWithSecret"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getWebhook: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Webhook"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    deleteWebhook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Webhook"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    updateWebhook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PatchWebhookBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Webhook"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    listWebhookDeliveries: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
                state?: "PENDING" | "DELIVERED" | "FAILED";
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookDeliveryPage"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    getWebhookDelivery: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                eventId: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookDeliveryWithBody"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    resendWebhookDelivery: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                eventId: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookDelivery"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    pingWebhook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookDelivery"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    replayWebhookEvents: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReplayBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Replay"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    rotateWebhookSecret: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WebhookWithSecret"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    listWorkspaces: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["WorkspaceList"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    createWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateWorkspaceBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Workspace"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    getWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Workspace"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    updateWorkspace: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PatchWorkspaceBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Workspace"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    listApiKeys: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["ApiKeyList"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    mintApiKey: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MintKeyBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["MintedKey"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    revokeApiKey: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
                keyId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["ApiKey"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    watchWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": {
                        data: components["schemas"]["Workspace"];
                        /** @constant */
                        event: "workspace";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["Session"];
                        /** @constant */
                        event: "assignment";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["Session"];
                        /** @constant */
                        event: "session";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["Session"];
                        /** @constant */
                        event: "request";
                        /** @description Counts the events of one stream */
                        id: string;
                    } | {
                        data: components["schemas"]["RequestClosed"];
                        /** @constant */
                        event: "requestClosed";
                        /** @description Counts the events of one stream */
                        id: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    postLocation: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HeartbeatBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Workspace"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    resetLocation: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Workspace"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    postLocations: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HeartbeatsBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["HeartbeatVerdicts"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    listMembers: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["MemberList"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            default: components["responses"]["Error"];
        };
    };
    addMember: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AddMemberBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Member"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    removeMember: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
                walletAddress: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Member"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            401: components["responses"]["Error401_NOT_AUTHENTICATED_REVOKED_API_KEY"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            404: components["responses"]["Error404_NOT_FOUND"];
            409: components["responses"]["Error409_INVALID_STATE_CONFLICT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_AUTHZ_ERROR_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
    challengeWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChallengeBody"];
            };
        };
        responses: {
            /** @description Request successful */
            200: {
                headers: {
                    "x-request-id": components["headers"]["RequestId"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        data: components["schemas"]["Challenge"];
                        /** @example Request successful */
                        message: string;
                        /** @constant */
                        statusCode: 200;
                        /**
                         * Format: date-time
                         * @example 2026-11-20T12:00:00.000Z
                         */
                        timestamp: string;
                    };
                };
            };
            400: components["responses"]["Error400_INVALID_INPUT"];
            403: components["responses"]["Error403_NOT_AUTHORIZED"];
            413: components["responses"]["Error413_INVALID_INPUT"];
            415: components["responses"]["Error415_INVALID_INPUT"];
            429: components["responses"]["Error429_RATE_LIMITED"];
            500: components["responses"]["Error500_INTERNAL_ERROR"];
            503: components["responses"]["Error503_UNAVAILABLE"];
            504: components["responses"]["Error504_OUTCOME_UNKNOWN"];
            default: components["responses"]["Error"];
        };
    };
}
