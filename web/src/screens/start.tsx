// From nothing to ready: wallet, workspace, test money, allowance.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, once, randomId } from "../api";
import { TEST_MONEY, hasFaucet, takeTestMoney, untilFunds } from "../chain/faucet";
import { setAllowance } from "../chain/payment";
import { extensions, extensionWallet, hasTestWallet, lastSigner, testWallet } from "../chain/signer";
import type { Signer } from "../chain/wallet";
import { microOf, roughly, short, usdc } from "../format";
import { keep } from "../kept";
import { Banner, Button, Card, Field, Icon, Page, useFocusAfter } from "../parts";
import { dropQuery, go, hasMoved, link, place } from "../router";
import { canBuy, canOperate, config, fieldOf, funds, me, notify, refresh, report, select, unpaidText, unpayable, workspace } from "../store";
import { t, type Word } from "../strings";
import { Choice, Invitations } from "./invitations";

/** Of these amounts in USDC the first allowance is chosen, unless another one is typed. */
const ALLOWANCES = ["5.00", "10.00", "25.00"];
const ALLOWANCE = "10.00";
/** The shortest view that the console offers. */
const MINUTE_S = 60;
type Role = "CONSUMER" | "SUPPLIER";

async function signIn(signer: Signer): Promise<void> {
  const walletAddress = signer.address;
  const challenge = await need(api.POST("/api/v1/auth/wallet/challenge", { body: { walletAddress } }));
  const signature = await signer.sign(challenge.message);
  const body = { walletAddress, nonce: challenge.nonce, signature };
  await need(api.POST("/api/v1/auth/wallet/login", { body }));
  keep("signedIn", "yes");
  await refresh();
}

async function createWorkspace(signer: Signer, name: string, roles: Role[]): Promise<void> {
  const walletAddress = signer.address;
  const challenge = await need(api.POST("/api/v1/workspaces/challenge", { body: { walletAddress } }));
  const signature = await signer.sign(challenge.message);
  const base = name.toLowerCase().normalize("NFKD").replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 20);
  const slug = `${base || "workspace"}-${randomId().slice(0, 6)}`;
  const body = { walletAddress, nonce: challenge.nonce, signature, slug, name, roles };
  const made = await need(api.POST("/api/v1/workspaces", { headers: once(), body }));
  await select(made.id);
}

function Step({ done, isNext, title, text, children }: { done: boolean; isNext: boolean; title: string; text: string; children?: preact.ComponentChildren }) {
  const heading = useFocusAfter<HTMLHeadingElement>([isNext], isNext && hasMoved);
  return (
    <li class={done ? "step done" : isNext ? "step next" : "step"}>
      <span class="step-mark" aria-hidden="true">{done && <Icon name="check" />}</span>
      <div>
        <h2 ref={isNext ? heading : null} tabIndex={-1}>{title}{done && <span class="sr"> {t("done")}</span>}</h2>
        <p>{text}</p>
        {isNext && children}
      </div>
    </li>
  );
}

export default function Start() {
  const signer = useSignal<Signer | null>(null);
  const linked = useSignal<{ key: string; address: string } | null>(null);
  const name = useSignal("");
  const roles = useSignal<"both" | Role>("both");
  const allowed = useSignal(ALLOWANCE);
  const allowance = microOf(allowed.value) || null; // 0 would allow nothing
  useEffect(() => {
    if (me.value) void lastSigner().then((found) => (signer.value = found));
  }, [me.value, extensions.value]);

  // `sightline demo --keep` prints a link with the key of its consumer's test wallet in the fragment. Anybody can make such
  // a link, so nothing is signed or kept before the user has seen the address and agreed.
  useEffect(() => {
    const key = place.value.query.get("testWallet");
    if (key === null || me.value === undefined || config.value?.environment !== "TEST") return;
    dropQuery();
    if (!/^0x[0-9a-f]{64}$/i.test(key)) return;
    if (me.value !== null || hasTestWallet()) return notify("demoWalletKept", "", true);
    import("../chain/test_wallet").then(({ addressOf }) => (linked.value = { key, address: addressOf(key) }), report);
  }, [me.value]);
  const useLinked = async (key: string): Promise<void> => {
    keep("testWallet", key);
    linked.value = null;
    await enter(testWallet);
    notify("demoWallet");
  };

  const current = async (): Promise<Signer> => {
    const signedIn = me.value?.walletAddress.toLowerCase();
    const isRight = (each: Signer | null): each is Signer => each !== null && (signedIn === undefined || each.address.toLowerCase() === signedIn);
    // The extension may have changed to another account since, and back.
    const found = isRight(signer.value) ? signer.value : await lastSigner();
    if (!isRight(found)) throw new Error(t("walletGone"));
    signer.value = found;
    return found;
  };
  const enter = async (make: () => Promise<Signer> | Signer): Promise<void> => {
    signer.value = await make();
    await signIn(signer.value);
  };
  const isIn = me.value !== null && me.value !== undefined;
  const mustChoose = isIn && workspace.value === null && (me.value?.workspaces.length ?? 0) > 0;
  const wallet = funds.value;
  const hasMoney = BigInt(wallet?.trackedBalance ?? "0") > 0n;
  const hasAllowance = BigInt(wallet?.trackedAllowance ?? "0") > 0n;
  const steps: [boolean, Word, Word][] = [
    [isIn, "stepWallet", "stepWalletText"],
    [workspace.value !== null, "stepWorkspace", "stepWorkspaceText"],
  ];
  if (workspace.value === null || canBuy.value) {
    steps.push([hasMoney, "stepMoney", "stepMoneyText"], [hasAllowance, "stepAllowance", config.value?.isEscrow ? "stepEscrowText" : "stepAllowanceText"]);
  }
  const next = steps.findIndex(([done]) => !done);

  // The base rate is that of every place; a place with few operators costs more.
  const minute = useSignal<bigint | null>(null);
  const isReady = next === -1 && canBuy.value;
  useEffect(() => {
    if (!isReady) return;
    const query = { lat: 0, lng: 0, durationSeconds: MINUTE_S };
    need(api.GET("/api/v1/pricing/quote", { params: { query } })).then(
      (quote) => (minute.value = BigInt(quote.baseRatePerSecondMicroUsdc) * BigInt(MINUTE_S)),
      () => undefined, // the price of a request says it too
    );
  }, [isReady]);
  const unpaid = isReady && minute.value !== null ? unpayable(minute.value, minute.value) : null;

  const allow = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null || allowance === null) return;
    await setAllowance(chain, await current(), allowance);
    await untilFunds(() => BigInt(funds.value?.trackedAllowance ?? "0") > 0n);
    notify("allowed");
  };
  const fund = async (): Promise<void> => {
    if (await takeTestMoney()) notify("funded");
  };
  const setUp = async (): Promise<void> => {
    await createWorkspace(await current(), name.value.trim() || t("defaultWorkspace"), roles.value === "both" ? ["CONSUMER", "SUPPLIER"] : [roles.value]);
  };

  const ready = useFocusAfter<HTMLHeadingElement>([next === -1]);
  return (
    <Page title={t("startTitle")} lead={t(workspace.value !== null && !canBuy.value ? "startLeadFilm" : "startLead")}>
      {isIn && signer.value?.kind === "test" && <Banner kind="warn" icon="warn">{t("testWalletBanner")}</Banner>}
      {isIn && <Invitations />}
      {mustChoose && (
        <Card title={t("chooseWorkspace")}>
          <p class="dim">{t("chooseWorkspaceText")}</p>
          <Choice />
        </Card>
      )}
      {!mustChoose && (
        <Card>
          <ol class="steps">
            {steps.map(([done, title, text], index) => (
              <Step key={title} done={done} isNext={index === next} title={t(title)} text={done && title === "stepWallet" && me.value ? short(me.value.walletAddress) : done && title === "stepWorkspace" ? (workspace.value?.name ?? "") : done && title === "stepMoney" ? usdc(wallet?.trackedBalance ?? "0") : done && title === "stepAllowance" ? usdc(wallet?.trackedAllowance ?? "0") : t(text)}>
                {title === "stepWallet" && linked.value !== null && (
                  <div class="choices">
                    <Banner kind="warn" icon="warn">{t("linkedWallet")} <code>{linked.value.address}</code></Banner>
                    <Button id="use-linked" kind="main" run={() => useLinked(linked.value?.key ?? "")}>{t("useLinkedWallet")}</Button>
                    <Button id="refuse-linked" run={() => void (linked.value = null)}>{t("refuseLinkedWallet")}</Button>
                  </div>
                )}
                {title === "stepWallet" && linked.value === null && (
                  <div class="choices">
                    <Button id="test-wallet" kind="main" run={() => enter(testWallet)}>{t(hasTestWallet() ? "useTestWallet" : "makeTestWallet")}</Button>
                    {extensions.value.map((each) => (
                      <Button key={each.info.uuid} run={() => enter(() => extensionWallet(each))}>
                        <img src={each.info.icon} alt="" width="20" height="20" />
                        {each.info.name}
                      </Button>
                    ))}
                    <p class="hint">{t(extensions.value.length === 0 ? "noExtension" : "testWalletHint")}</p>
                  </div>
                )}
                {title === "stepWorkspace" && (
                  <form class="form" onSubmit={(event) => (event.preventDefault(), document.getElementById("create-workspace")?.click())}>
                    <Field label={t("workspaceName")} hint={t("workspaceNameHint", { name: t("defaultWorkspace") })}>
                      <input id="workspace-name" maxLength={80} value={name.value} placeholder={t("defaultWorkspace")} onInput={(event) => (name.value = event.currentTarget.value)} />
                    </Field>
                    <Field label={t("purpose")}>
                      <select id="purpose" value={roles.value} onChange={(event) => (roles.value = event.currentTarget.value as "both" | Role)}>
                        <option value="both">{t("purposeBoth")}</option>
                        <option value="CONSUMER">{t("purposeWatch")}</option>
                        <option value="SUPPLIER">{t("purposeFilm")}</option>
                      </select>
                    </Field>
                    <Button id="create-workspace" kind="main" run={setUp}>{t("createWorkspace")}</Button>
                  </form>
                )}
                {title === "stepMoney" && (
                  <div class="form">
                    {!hasFaucet.value && <p>{t("moneyByCommand")} <code>{me.value?.walletAddress}</code></p>}
                    <Button id="faucet" kind="main" run={fund}>{hasFaucet.value ? t("getTestMoney", { amount: usdc(TEST_MONEY) }) : t("checkAgain")}</Button>
                  </div>
                )}
                {title === "stepAllowance" && (
                  <form class="form" onSubmit={(event) => (event.preventDefault(), document.getElementById("approve")?.click())}>
                    <Field label={t("allowanceNew")} {...(allowance === null && { error: t("amountWrong") })}>
                      <input id="first-allowance" inputMode="decimal" value={allowed.value} onInput={(event) => (allowed.value = event.currentTarget.value)} />
                    </Field>
                    <div class="row amounts">
                      {ALLOWANCES.map((each) => <Button key={each} isOn={allowance === microOf(each)} run={() => (allowed.value = each)}>{roughly(microOf(each) ?? 0n)}</Button>)}
                    </div>
                    <Button id="approve" kind="main" disabled={allowance === null} run={allow}>{allowance === null ? t("set") : t("allowUpTo", { amount: usdc(allowance) })}</Button>
                  </form>
                )}
              </Step>
            ))}
          </ol>
        </Card>
      )}
      {unpaid !== null && minute.value !== null && (
        <Banner kind="warn" icon="warn">
          {unpaid.why === "allowance" ? t("minuteNotAllowed", { amount: usdc(unpaid.most), price: usdc(minute.value) }) : unpaidText(unpaid)}
          <div class="row"><a id="raise-limit" class="button main" href={link("wallet", fieldOf(unpaid))}>{t(unpaid.why === "short" ? "navWallet" : "raiseLimits")}</a></div>
        </Banner>
      )}
      {next === -1 && (
        <div class="row">
          <h2 ref={ready} class="sr" tabIndex={-1}>{t(unpaid === null ? "startReady" : "addFunds")}</h2>
          {canBuy.value && <Button id="to-buy" kind={unpaid === null ? "main" : "plain"} run={() => go("buy")}>{t("firstView")}</Button>}
          {canOperate.value && <Button kind={canBuy.value ? "plain" : "main"} run={() => go("operate")}>{t("operateTitle")}</Button>}
        </div>
      )}
    </Page>
  );
}

/** The wallet is shown as the chain's watcher sees it, a block or two later. */
