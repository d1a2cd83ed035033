// Theme and language, kept in this browser.
import { report, theme, type Theme } from "./store";
import { LANGUAGES, language, speak, t, type Language } from "./strings";

export const Preferences = () => (
  <div class="preferences">
    <label>
      <span>{t("theme")}</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        <option value="system">{t("themeSystem")}</option>
        <option value="light">{t("themeLight")}</option>
        <option value="dark">{t("themeDark")}</option>
      </select>
    </label>
    <label>
      <span>{t("language")}</span>
      <select value={language.value} onChange={(event) => void speak(event.currentTarget.value as Language).catch(report)}>
        {Object.entries(LANGUAGES).map(([name, own]) => <option key={name} value={name} lang={name}>{own}</option>)}
      </select>
    </label>
  </div>
);
