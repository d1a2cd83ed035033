declare module "*.svg" { const url: string; export default url; }
declare module "*.css";
declare module "*.gen.txt" { const url: string; export default url; }
declare module "*.gen.json" { const url: string; export default url; }
